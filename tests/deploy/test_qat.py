"""Quantization-aware training: the ranges that a model learns are those of its int8 file."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from vocabularies import small_tokenizer

import lightbert
from extras import needs_onnx
from lightbert.cli import main
from lightbert.deploy.export import export
from lightbert.deploy.onnx.graph import Linear
from lightbert.deploy.onnx.lowering import Int8, Range, lower, quantize_rows
from lightbert.deploy.onnx.model import graph_of
from lightbert.errors import InputError
from lightbert.models import PRESETS, build
from lightbert.nn.quantization import remove_simulation, simulate_int8
from lightbert.tasks.predict.exported import Session
from randomised import randomised

pytestmark = needs_onnx

TEXTS = [f"{a} {b} {c}" for a in ("a", "the", "the film was a") for b in ("good", "bad") for c in ("film", ".")]


def tiny_mobilebert():
    sizes = {"vocab": 13, "positions": 16, "narrow": 8, "width": 16, "block_width": 8, "depth": 2, "inner": 16}
    config = replace(PRESETS["mobilebert-nano"], **sizes, n_heads=2, feedforwards=2, activation="relu6")
    return build(config, seed=0)


def test_the_file_computes_what_was_simulated():
    model = randomised(tiny_mobilebert()).requires_grad_(False)
    for part in model.embeddings.modules():
        # Tables that int8 represents exactly.
        if isinstance(part, torch.nn.Embedding):
            integers, scale = quantize_rows(part.weight.numpy())
            part.weight.copy_(torch.from_numpy(integers * scale))
    rows = np.random.default_rng(0).integers(5, 13, (8, 12))
    exact = model(torch.from_numpy(rows)).numpy()
    simulate_int8(model.train())
    for _ in range(3):
        model(torch.from_numpy(rows))
    simulated = model.eval()(torch.from_numpy(rows)).numpy()
    learned = remove_simulation(model)
    graph, outputs = graph_of(model, "states", folding=False)
    layers = [node for node in graph.nodes if isinstance(node, Linear)]
    ranges = {each.input: Range(*learned[each.name]) for each in layers if each.name in learned}
    assert {each.name for each in layers} - set(learned) == {"embeddings.project"}
    content = lower(graph, outputs, Int8(ranges=ranges, floats=frozenset({"embeddings.project"})))
    (found,) = Session(content)(rows, None, np.zeros_like(rows))
    # Values on the edge between two steps fall to either side, and change the tokens that attend to them.
    tolerance = 1e-4 * np.abs(exact).max()
    same, unrounded = (np.isclose(each, simulated, atol=tolerance).all(-1).mean() for each in (found, exact))
    assert same > 0.75
    assert unrounded < 0.1


@pytest.fixture
def data(tmp_path):
    lines = [f"{text}\t{'good' if 'good' in text else 'bad'}" for text in TEXTS]
    (tmp_path / "reviews.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return tmp_path / "reviews.tsv"


def test_a_fine_tuned_model_is_saved_with_its_ranges_and_exported_with_them(data, tmp_path, capsys):
    model = tiny_mobilebert()
    model.tokenizer = small_tokenizer()
    lightbert.save(model, tmp_path / "start")
    recipe = [
        "finetune",
        "classify",
        f"model={tmp_path / 'start'}",
        f"data.train={data}",
        f"data.dev={data}",
        "length=16",
    ]
    recipe += ["lr=0.003", "batch=4", "threads=1", "checkpoint_every=3"]
    out = tmp_path / "run"
    assert main([*recipe, f"out={out}", "quantization_aware=true", "epochs=20", "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    content = json.loads((out / "final" / "config.json").read_text())
    assert set(content["ranges"]) >= {"blocks.0.enter", "blocks.1.feedforward.1.down", "heads.classify.output"}
    # relu6 bounds what the second layer of a feed-forward reads.
    low, high = content["ranges"]["blocks.0.feedforward.0.down"]
    assert low == 0
    assert 0 < high <= 6
    arguments = ["export", str(out / "final"), "--int8", "qat", "--data", str(data), "--json"]
    assert main([*arguments, "--out", str(tmp_path / "int8")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["precision"] == "int8 qat"
    assert report["metrics"]["accuracy_after"] == pytest.approx(trained["metrics"]["accuracy"], abs=0.1)
    # Without the key, the next run forgets the ranges.
    recipe[2] = f"model={out / 'final'}"
    assert main([*recipe, f"out={tmp_path / 'plain'}", "steps=1", "--json"]) == 0
    assert "ranges" not in json.loads((tmp_path / "plain" / "final" / "config.json").read_text())


def test_a_model_without_learned_ranges_is_an_error(tmp_path):
    with pytest.raises(
        InputError, match="--int8 qat requires a model that was fine-tuned with quantization_aware=true"
    ):
        export(tiny_mobilebert(), tmp_path / "out", int8="qat")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [[1], [2, 1], ["a", "b"], 3, [None, 1]])
def test_a_damaged_range_is_an_error(wrong, tmp_path):
    model = tiny_mobilebert()
    model.ranges = {"blocks.0.enter": (-1.0, 1.0)}
    lightbert.save(model, tmp_path / "model")
    assert lightbert.load(tmp_path / "model").ranges == {"blocks.0.enter": (-1.0, 1.0)}
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ranges": {"blocks.0.enter": wrong}}))
    with pytest.raises(InputError, match=r"the range of .blocks.0.enter. .* must be two increasing numbers"):
        lightbert.load(tmp_path / "model")
