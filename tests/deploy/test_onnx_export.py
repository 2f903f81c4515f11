"""`lightbert export` writes a verified folder, or nothing."""

import json

import numpy as np
import pytest
from tiny_classifiers import tiny_model, write_tiny_model

from extras import needs_onnx
from lightbert.cli import main
from lightbert.deploy.export import export
from lightbert.deploy.onnx import lowering
from lightbert.errors import InputError
from lightbert.tasks.kinds.classify import Classify, Labels

pytestmark = needs_onnx

REVIEWS = Classify(("bad", "good"))


def damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change one weight of every file that is written."""
    import onnx

    lower = lowering.lower

    def lower_and_damage(*arguments):
        content = onnx.load_from_string(lower(*arguments))
        bias = next(each for each in content.graph.initializer if each.name.endswith("heads.classify.output.bias"))
        bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + np.float32(0.1), bias.name))
        return content.SerializeToString()

    monkeypatch.setattr(lowering, "lower", lower_and_damage)


def test_the_folder_has_the_layout_of_hugging_face(tmp_path, capsys):
    model = write_tiny_model(tmp_path / "model", REVIEWS)
    assert main(["export", str(model), "--out", str(tmp_path / "out"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "model.onnx",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model_type"] == "convbert"
    assert config["architectures"] == ["ConvBertForSequenceClassification"]
    assert config["id2label"] == {"0": "bad", "1": "good"}
    assert report["head"] == "classify"
    assert report["bytes"] == (tmp_path / "out" / "model.onnx").stat().st_size
    assert report["metrics"]["error"] < 1e-5
    assert [each["tokens"] for each in report["comparisons"]][-2:] == [1, 16]


def test_a_multi_label_model_says_so_in_its_config(tmp_path):
    export(tiny_model(Labels(("a", "b"))), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"


def test_outputs_without_names_are_named_in_the_folder_and_for_the_data(tmp_path, capsys):
    model = write_tiny_model(tmp_path / "model", None, "classify", labels=3)
    data = tmp_path / "dev.csv"
    data.write_text("text,label\ngood film,up\nbad film,down\nthe film,even\n")
    command = ["export", str(model), "--out", str(tmp_path / "out"), "--data", str(data), "--int8", "static"]
    assert main([*command, "--max-loss", "100", "--labels", "down,even,up"]) == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["id2label"] == {"0": "down", "1": "even", "2": "up"}
    assert "accuracy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "labels", "message"),
    [
        ((None, "classify"), "a,b", "the classify head has 3 outputs and requires as many labels, got 2: a, b"),
        ((REVIEWS,), "a,b", "the outputs of the model have names, bad, good; leave out --labels"),
        ((None, "span"), "a,b", "the outputs of the model aren't labels, got --labels a,b; leave it out"),
    ],
)
def test_names_that_do_not_fit_the_outputs_are_errors(tmp_path, capsys, arguments, labels, message):
    settings = {"labels": 3} if arguments[-1] == "classify" else {}
    model = write_tiny_model(tmp_path / "model", *arguments, **settings)
    assert main(["export", str(model), "--out", str(tmp_path / "out"), "--labels", labels]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_report_is_a_table_of_errors(tmp_path, capsys):
    model = write_tiny_model(tmp_path / "model", REVIEWS)
    assert main(["export", str(model), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    for inputs in ("one text", "8 texts, padded", "pairs of texts, padded", "one token", "maximum length"):
        assert inputs in printed


def test_a_file_that_differs_from_the_model_is_not_published(tmp_path, monkeypatch):
    damage(monkeypatch)
    with pytest.raises(InputError, match=r"differs from the model: the error for one text must be <= 0.001, got 0.1"):
        export(tiny_model(REVIEWS), tmp_path / "new" / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_export_leaves_the_previous_folder(tmp_path, monkeypatch):
    export(tiny_model(REVIEWS), tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    damage(monkeypatch)
    with pytest.raises(InputError, match="differs from the model"):
        export(tiny_model(REVIEWS), tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_a_model_without_a_task_exports_its_states(tmp_path):
    assert export(tiny_model(None), tmp_path / "out").head == "states"
    assert export(tiny_model(None, "mlm"), tmp_path / "out").head == "states"
    assert export(tiny_model(None, "mlm"), tmp_path / "out", head="mlm").head == "mlm"


def test_a_model_without_a_tokenizer_is_verified_on_random_tokens(tmp_path):
    model = tiny_model(REVIEWS)
    model.tokenizer = None
    done = export(model, tmp_path / "out")
    assert [each.inputs for each in done.comparisons] == ["one row", "4 rows, padded", "one token", "maximum length"]
    assert not (tmp_path / "out" / "tokenizer.json").exists()


def test_bad_arguments_are_errors(tmp_path, capsys):
    model = write_tiny_model(tmp_path / "model", REVIEWS)
    assert main(["export", str(model), "--out", str(tmp_path / "out"), "--head", "clasify"]) == 1
    assert "unknown head 'clasify'; did you mean 'classify'?" in capsys.readouterr().err
    assert main(["export", str(model), "--out", str(model)]) == 1
    assert "is not empty; choose another folder, or add --force" in capsys.readouterr().err
    assert main(["export", "convbert-small", "--out", str(tmp_path / "out")]) == 1
    assert "is a preset without weights" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
