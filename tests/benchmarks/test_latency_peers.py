"""The latency benchmark measures transformers' models and single blocks next to ours; times are not tested."""

import json

import pytest
import torch

from benchmarks import latency
from benchmarks.latency import Settings, measure
from benchmarks.latency_files import encoder_of, transformers_encoder
from extras import needs_executorch, needs_onnx, needs_trainer
from lightbert.nn.convolution import SpanConvolution


@needs_onnx
def test_a_model_of_transformers_is_measured_next_to_ours(capsys):
    pytest.importorskip("transformers")
    arguments = ["--models", "convbert-tiny", "--runtimes", "torch,peer", "--length", "7", "--threads", "1"]
    latency.main([*arguments, "--rounds", "1", "--json"])
    assert [row["runtime"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["torch", "peer"]


@needs_executorch
def test_a_block_is_measured_in_executorch():
    runtimes = ("torch", "executorch", "executorch-int8")
    report = measure(Settings(models=("mixed-block",), runtimes=runtimes, length=7, threads=1, rounds=1))
    assert report.rows[2].megabytes < 0.8 * report.rows[1].megabytes


@needs_onnx
def test_only_the_given_pairs_are_measured():
    pairs = (("bert-tiny", "onnx"), ("convbert-tiny", "torch"))
    settings = Settings(models=(), runtimes=(), length=7, threads=1, rounds=1, pairs=pairs)
    assert tuple((row.model, row.runtime) for row in measure(settings).rows) == pairs


@needs_trainer
def test_a_model_of_transformers_has_our_weights():
    ids = torch.randint(5, 50, (1, 6))
    expected = encoder_of("bert-tiny")(ids)
    found = transformers_encoder("bert-tiny")(ids, torch.ones_like(ids), torch.zeros_like(ids))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_models_can_be_single_blocks():
    assert any(isinstance(part, SpanConvolution) for part in encoder_of("mixed-block").modules())
    assert not any(isinstance(part, SpanConvolution) for part in encoder_of("attention-block").modules())
