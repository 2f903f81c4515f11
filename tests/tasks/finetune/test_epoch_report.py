"""The line per epoch of a fine-tuning run, its baseline, its warning, and the picture of the losses."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_tasks import NO_DROPOUT, SETTINGS, finetune, only, write_model, write_reviews
from vocabularies import small_tokenizer

from extras import needs_metrics, needs_plots
from lightbert.cli import main
from lightbert.tasks.example import Example, TaggedSentence, TextEncoder
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.kinds.tokens import Tokens

pytestmark = needs_metrics

LINE = re.compile(r"^epoch (\S+) of (\S+): loss (\S+), dev accuracy (\S+) \(baseline (\S+)\)$", re.MULTILINE)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    where = tmp_path_factory.mktemp("start")
    model, train = write_model(where / "model"), write_reviews(where / "train.csv", rows=32)
    dev = where / "dev.csv"
    dev.write_text("body,topic\n" + "a good film,good\n" * 3 + "a bad film,bad\n")
    return (f"model={model}", f"data.train={train}", f"data.dev={dev}", "data.text=body", "data.label=topic")


def test_every_epoch_has_a_line_with_the_loss_the_dev_metric_and_the_baseline(start, tmp_path: Path, capsys):
    result = only(finetune("classify", *start, f"out={tmp_path}", "epochs=3", "batch=8"))
    lines = LINE.findall(capsys.readouterr().err)
    assert [(epoch, epochs) for epoch, epochs, *_ in lines] == [("1", "3"), ("2", "3"), ("3", "3")]
    # "good" or "bad", whichever is more frequent in the training file.
    assert {baseline for *_, baseline in lines} <= {"0.7500", "0.2500"}
    assert float(lines[0][4]) == result.baseline["accuracy"]


def test_the_loss_is_the_mean_over_the_steps_since_the_last_evaluation(start, tmp_path: Path, capsys):
    import json

    finetune("classify", *start, f"out={tmp_path}", "epochs=2", "batch=8")
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if record["kind"] == "train"]
    shown = [float(loss) for _, _, loss, *_ in LINE.findall(capsys.readouterr().err)]
    assert shown == pytest.approx([np.mean(losses[:4]), np.mean(losses[4:])], abs=1e-4)


def test_evaluations_within_an_epoch_show_a_fraction(start, tmp_path: Path, capsys):
    finetune("classify", *start, f"out={tmp_path}", "epochs=1", "batch=8", "evaluate_every=2")
    assert [epoch for epoch, *_ in LINE.findall(capsys.readouterr().err)] == ["0.5", "1"]


def test_a_warning_says_if_one_label_is_always_predicted(start, tmp_path: Path, capsys):
    frozen = ("lr=1e-9", "epochs=1", "head.init=random", *NO_DROPOUT)
    finetune("classify", *start, f"out={tmp_path / 'frozen'}", *frozen)
    warning = r"warning: all predictions for dev are '(good|bad)'; if this doesn't.*, or try sort_over=1, another lr="
    assert re.search(warning, capsys.readouterr().err)
    finetune("classify", *start, f"out={tmp_path / 'unsorted'}", *frozen, "sort_over=1")
    assert "train for more epochs, or try another lr= or another seed=\n" in capsys.readouterr().err
    finetune("classify", *start, f"out={tmp_path / 'trained'}", "epochs=12", "lr=3e-3", *NO_DROPOUT)
    last = capsys.readouterr().err.splitlines()[-1]
    assert "warning" not in last


def test_without_dev_data_the_line_has_the_loss_only(start, tmp_path: Path, capsys):
    alone = (start[0], start[1], *start[3:], "data.hold_out=0", "choose=last", "epochs=1")
    finetune("classify", *alone, f"out={tmp_path}")
    assert re.search(r"^epoch 1 of 1: loss \d\.\d{4}$", capsys.readouterr().err, re.MULTILINE)


@needs_plots
def test_the_losses_and_the_metric_are_drawn(start, tmp_path: Path):
    assert main(["finetune", "classify", *SETTINGS, *start, "epochs=1", f"out={tmp_path}"]) == 0
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_the_final_table_has_the_baseline(start, tmp_path: Path, capsys):
    assert main(["finetune", "classify", *SETTINGS, *start, "epochs=1", f"out={tmp_path}"]) == 0
    page = capsys.readouterr().out
    assert re.search(r"metric on dev +value +baseline", page)
    assert re.search(r"accuracy +\d\.\d{4} +0\.[27]500", page)
    assert "| metric on dev | value | baseline |" in (tmp_path / "final" / "README.md").read_text()


ENCODER = TextEncoder(small_tokenizer(), 8)


def baseline(kind: Kind, train: list, dev: list) -> dict[str, float]:
    return kind.metrics(dev, kind.baseline(kind.features(train, ENCODER), dev))


def test_the_baseline_of_classification_is_the_most_frequent_training_label():
    train = [Example("a", label=label) for label in ("x", "y", "y")]
    dev = [Example("a", label=label) for label in ("x", "x", "x", "y")]
    assert baseline(Classify(("x", "y")), train, dev)["accuracy"] == 0.25


@pytest.mark.parametrize(("labels", "accuracy"), [((("x",), ("x", "y")), 0.5), ((("x",), ("y",), ("z",), ("z",)), 0.0)])
def test_the_baseline_of_several_labels_are_the_frequent_ones(labels, accuracy):
    train = [Example("a", label=each) for each in labels]
    dev = [Example("a", label=each) for each in (("x",), ("x", "y"))]
    kind = Labels(("x", "y", "z"))
    assert kind.baseline(kind.features(train, ENCODER), dev)[0]["labels"] == (["x"] if accuracy else ["z"])
    assert baseline(kind, train, dev)["accuracy"] == accuracy


@pytest.mark.parametrize("scaled", [True, False])
def test_the_baseline_of_regression_is_the_mean(scaled):
    train = [Example("a", label=number) for number in (0.0, 4.0, 5.0)]
    found = baseline(replace(Regress(0.0, 5.0), scaled=scaled), train, [Example("a", label=1.0)])
    assert found["mse"] == pytest.approx(4.0, rel=1e-6)


def test_the_baseline_of_tagging_is_the_most_frequent_tag():
    train = [TaggedSentence(("good", "film", "a"), ("O", "O", "B-X"))]
    found = baseline(Tokens(("O", "B-X")), train, [TaggedSentence(("a", "film"), ("O", "B-X"))])
    assert (found["accuracy"], found["f1"]) == (0.5, 0.0)


def test_questions_have_no_baseline():
    assert Spans().baseline(None, []) == []


@pytest.mark.parametrize(
    ("kind", "predictions", "label"),
    [
        (Classify(("x", "y")), [{"label": "x"}, {"label": "x"}], "x"),
        (Classify(("x", "y")), [{"label": "x"}, {"label": "y"}], ""),
        (Labels(("x", "y")), [{"labels": []}, {"labels": []}], "no label"),
        (Labels(("x", "y")), [{"labels": ["x", "y"]}] * 2, "x, y"),
        (Tokens(("O", "B-X")), [{"tags": [{"tag": "O"}, {"tag": "O"}]}], "O"),
        (Tokens(("O", "B-X")), [{"tags": [{"tag": "O"}, {"tag": "B-X"}]}], ""),
        (Regress(0.0, 1.0), [{"score": 0.5}] * 2, ""),
    ],
)
def test_a_single_predicted_label_is_found(kind, predictions, label):
    assert kind.only_label(predictions) == label
