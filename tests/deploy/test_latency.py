"""The latency benchmark runs every runtime; times are not tested."""

import json

import pytest
import torch

from extras import needs_executorch, needs_onnx
from lightbert import bundled
from lightbert.cli import main
from lightbert.deploy.latency import Settings, encoder_of, measure
from lightbert.errors import InputError
from lightbert.models import build, folder


@needs_onnx
def test_every_model_is_measured_in_every_runtime(capsys):
    arguments = ["bench", "latency", "--models", "bert-tiny,convbert-tiny", "--length", "9", "--rounds", "2"]
    before = torch.get_num_threads()
    assert main([*arguments, "--threads", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    found = [(row["model"], row["runtime"]) for row in report["rows"]]
    assert found == [
        (model, runtime) for model in ("bert-tiny", "convbert-tiny") for runtime in ("torch", "onnx", "int8")
    ]
    assert report["rows"][0]["ratio"] == 1.0
    assert report["metrics"]["bert-tiny/onnx"] == report["rows"][1]["milliseconds"] > 0
    assert report["rows"][2]["megabytes"] < report["rows"][1]["megabytes"] / 2
    assert torch.get_num_threads() == before
    assert main([*arguments, "--runtimes", "onnx"]) == 0
    assert "ratios to bert-tiny, onnx" in " ".join(capsys.readouterr().out.split())


@needs_executorch
def test_executorch_is_measured_in_float32_and_int8():
    runtimes = ("torch", "executorch", "executorch-int8")
    report = measure(Settings(models=("bert-tiny",), runtimes=runtimes, length=7, threads=1, rounds=1))
    assert [row.runtime for row in report.rows] == list(runtimes)
    # Much of the file of so small a model is its program.
    assert report.rows[2].megabytes < 0.8 * report.rows[1].megabytes


def test_bundled_models_and_folders_are_measured_with_random_weights(tmp_path, monkeypatch):
    folder.save(build("convbert-tiny", seed=3), tmp_path / "convbert-thin-en")
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    found, expected = encoder_of("convbert-thin-en"), encoder_of("convbert-tiny")
    assert torch.equal(found.table, expected.table)
    assert torch.equal(encoder_of(str(tmp_path / "convbert-thin-en")).table, expected.table)
    assert len(encoder_of("convbert-thin-en:depth=1").blocks) == 1


def test_an_unknown_model_is_an_error_that_suggests_a_preset_or_a_bundled_model():
    with pytest.raises(InputError, match="unknown model 'convbert-thn-en'; did you mean 'convbert-thin-en'"):
        encoder_of("convbert-thn-en")


def test_models_can_have_changes():
    assert encoder_of("mobilebert-nano:norm=layer:activation=gelu").fp16


def test_bad_settings_are_errors():
    with pytest.raises(InputError, match="unknown runtime 'onx'; did you mean 'onnx'"):
        Settings(runtimes=("onx",))
    with pytest.raises(InputError, match="rounds must be >= 1, got 0"):
        Settings(rounds=0)
    with pytest.raises(InputError, match="length must be <= 128, the positions of bert-tiny"):
        measure(Settings(models=("bert-tiny",), runtimes=("torch",), length=4096))
