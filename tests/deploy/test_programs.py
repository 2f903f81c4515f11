"""Programs of torch.export: .pt2 for PyTorch, .pte for ExecuTorch."""

import subprocess
import sys
from dataclasses import replace

import pytest
from small import FAMILIES
from tiny_classifiers import tiny_model, write_tiny_model
from torch import nn

import lightbert
from extras import needs_executorch
from lightbert.cli import main
from lightbert.deploy.export import export_program
from lightbert.errors import InputError
from lightbert.models import build
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.kinds.tokens import Tokens
from lightbert.tasks.predict.predictor import Predictor

REVIEWS = Classify(("bad", "good"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_exported_to_pt2(family, tmp_path):
    done = export_program(build(replace(FAMILIES[family], depth=1), seed=0), tmp_path / "out", to="pt2")
    assert (done.file, done.head) == ("model.pt2", "states")
    assert [each.inputs for each in done.comparisons][-2:] == ["one token", "maximum length"]
    assert max(each.error for each in done.comparisons) < 1e-5


@pytest.mark.parametrize("kind", [REVIEWS, Tokens(("O", "B-X", "I-X"))], ids=["classify", "tokens"])
def test_a_pt2_file_predicts_like_the_model(kind, tmp_path):
    model, texts = tiny_model(kind), ["good", "the film was bad . the film was good", "a film", ""]
    export_program(model, tmp_path / "out", to="pt2")
    found, expected = lightbert.load(tmp_path / "out").predict(texts), Predictor(model).predict(texts)
    if kind is REVIEWS:
        for one, other in zip(found, expected, strict=True):
            assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
    else:
        assert [[tag["tag"] for tag in each["tags"]] for each in found] == [
            [tag["tag"] for tag in each["tags"]] for each in expected
        ]


@pytest.mark.parametrize("pool", ["mean", "max", "mean-max"])
def test_a_pooled_head_is_exported_to_pt2(pool, tmp_path):
    model, texts = tiny_model(REVIEWS, pool=pool), ["good", "the film was bad . the film was good", "a film", ""]
    done = export_program(model, tmp_path / "out", to="pt2")
    assert max(each.error for each in done.comparisons) < 1e-5
    found, expected = lightbert.load(tmp_path / "out").predict(texts), Predictor(model).predict(texts)
    for one, other in zip(found, expected, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)


def test_the_beam_search_is_exported_to_onnx_only(tmp_path):
    model = tiny_model(Spans("beam", stride=4, max_query=4), inner=8, beam=5)
    with pytest.raises(InputError, match="head 'beam' can only be exported to ONNX; use --to onnx"):
        export_program(model, tmp_path / "out", to="pt2")
    assert list(tmp_path.iterdir()) == []


def test_a_pt2_file_runs_without_lightbert(tmp_path):
    export_program(tiny_model(REVIEWS), tmp_path / "out", to="pt2")
    code = (
        "import sys, torch; run = torch.export.load(sys.argv[1]).module(); ids = torch.ones(3, 5, dtype=torch.long); "
        "print(list(run(ids, ids == 1, ids * 0)[0].shape)); sys.exit('lightbert' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out" / "model.pt2")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[3, 2]"


def test_the_command_exports_and_predicts(tmp_path, capsys):
    model = write_tiny_model(tmp_path / "model", REVIEWS)
    assert main(["export", str(model), "--out", str(tmp_path / "out"), "--to", "pt2"]) == 0
    assert main(["predict", str(tmp_path / "out" / "model.pt2"), "good film"]) == 0
    assert '"label"' in capsys.readouterr().out
    (tmp_path / "out" / "model.pt2").write_bytes(b"damaged")
    assert main(["predict", str(tmp_path / "out"), "good film"]) == 1
    assert "is not a .pt2 archive of lightbert" in capsys.readouterr().err
    arguments = ["export", str(model), "--out", str(tmp_path / "new"), "--to", "pt2", "--int8", "dynamic"]
    assert main(arguments) == 1
    assert "--to pt2 supports float32 only, got --int8 dynamic; use --to onnx" in capsys.readouterr().err
    arguments = ["export", str(model), "--out", str(tmp_path / "new"), "--to", "executorch", "--int8", "qat"]
    assert main(arguments) == 1
    assert "--to executorch supports --int8 dynamic only, got --int8 qat" in capsys.readouterr().err


def test_executorch_that_is_not_installed_is_an_error_that_names_it(tmp_path, monkeypatch):
    for name in ("executorch", "executorch.exir", "executorch.backends.xnnpack.partition.xnnpack_partitioner"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match="export to ExecuTorch requires executorch"):
        export_program(tiny_model(REVIEWS), tmp_path / "out", to="executorch")
    assert list(tmp_path.iterdir()) == []


@needs_executorch
@pytest.mark.prove
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("family", "pool"), [("convbert", "cls"), ("mobilebert", "cls"), ("convbert", "mean-max")])
def test_a_pte_file_predicts_like_the_model(family, pool, tmp_path):
    model = build(replace(FAMILIES[family], depth=1), {"classify": {"labels": 2, "pool": pool}}, seed=0)
    done = export_program(model, tmp_path / "out", to="executorch", head="classify")
    assert done.file == "model.pte"
    assert max(each.error for each in done.comparisons) < 1e-5


@needs_executorch
@pytest.mark.prove
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("default")
def test_an_int8_pte_file_is_smaller_and_close_to_the_model(tmp_path):
    config = replace(FAMILIES["mobilebert"], depth=1, width=64, block_width=32, inner=256)
    model = build(config, seed=0)
    done = export_program(model, tmp_path / "out", to="executorch", int8=True)
    assert done.precision == "int8 dynamic"
    assert done.quantized is not None
    # Two bottlenecks, query, key, value, output, the feed-forwards, the way out, and the trigrams.
    assert done.quantized.layers == 8 + 2 * config.feedforwards
    kinds = (nn.Linear, nn.Embedding)
    quantized = sum(part.weight.numel() for part in model.modules() if isinstance(part, kinds))
    others = sum(each.numel() for each in model.parameters()) - quantized
    # A byte per weight of a linear layer or a table, four for all else, and the program.
    assert done.bytes < 1.1 * (quantized + 4 * others) + 100_000
    assert min(each.cosine for each in done.comparisons) > 0.99
    assert lightbert.load(tmp_path / "out").precision == "int8 dynamic"


@needs_executorch
@pytest.mark.prove
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("default")
def test_an_int8_pte_file_of_mixed_attention_predicts_like_the_model(tmp_path):
    model = build(replace(FAMILIES["convbert"], depth=1), {"classify": {"labels": 2}}, seed=0)
    done = export_program(model, tmp_path / "out", to="executorch", head="classify", int8=True)
    assert min(each.cosine for each in done.comparisons) > 0.99
