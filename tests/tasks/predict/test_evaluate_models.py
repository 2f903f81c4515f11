import json

import pytest
import torch
from tiny_classifiers import tiny_model

from extras import needs_metrics
from lightbert.errors import InputError
from lightbert.tasks.example import Answer, Example, Question, TaggedSentence
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.kind import Task
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.kinds.tokens import Tokens
from lightbert.tasks.predict.evaluation import evaluate, write
from lightbert.tasks.predict.predictor import kind_of_model

pytestmark = needs_metrics

REVIEWS = Classify(("negative", "positive"))
TEXTS = ["good film", "bad film", "the film was good .", "a bad bad film .", "good", "the film was the film ."]
LABELS = ["positive", "negative", "positive", "negative", "positive", "negative"]


def task(kind, examples, name="own", test=()):
    return Task(name, kind, {"dev": lambda: list(examples), "test": lambda: list(test)}, metric="accuracy")


def reviews(labels=LABELS, kind=REVIEWS):
    examples = [
        Example(text, label=label, id=str(at)) for at, (text, label) in enumerate(zip(TEXTS, labels, strict=True))
    ]
    return task(kind, examples, test=[Example(text) for text in TEXTS])


def test_metrics_match_the_predictions_of_the_model():
    result = evaluate(tiny_model(REVIEWS), reviews(), device="cpu")
    right = sum(said["label"] == label for said, label in zip(result.predictions, LABELS, strict=True))
    assert result.metrics["accuracy"] == right / 6
    assert [finding.key for finding in result.findings] == ["labels", "confusion", "calibration", "most_wrong"]
    assert result.counts()["examples"] == 6
    # [CLS] and [SEP] around each text.
    assert result.tokens == sum(len(text.split()) for text in TEXTS) + 12
    assert result.counts()["tokens_per_second"] > 0


def test_without_worst_errors_the_report_has_no_table_of_them():
    model = tiny_model(REVIEWS)
    result = evaluate(model, reviews(), device="cpu", worst=0)
    assert result.findings[-1].value == []
    assert [table.title for table in result.tables()][-2:] == ["Calibration", "Counts"]
    assert evaluate(model, reviews(), device="cpu", worst=1).findings[-1].tables[0].title == "Most wrong"


def test_labels_are_matched_by_name_in_any_order():
    model = tiny_model(REVIEWS)
    before = evaluate(model, reviews(), device="cpu").metrics
    output = model.heads["classify"].output
    with torch.no_grad():
        output.weight.copy_(output.weight.flip(0))
        output.bias.copy_(output.bias.flip(0))
    model.task["labels"] = ["positive", "negative"]
    assert evaluate(model, reviews(), device="cpu").metrics == before


def test_a_split_without_labels_is_predicted_without_metrics():
    result = evaluate(tiny_model(REVIEWS), reviews(), "test", device="cpu")
    assert result.metrics == {}
    assert len(result.predictions) == 6
    assert result.findings == ()
    assert result.counts()["unlabelled"] == 6


def test_a_partly_labelled_split_is_an_error():
    with pytest.raises(InputError, match="all examples of own, dev, must have labels, 2 of 6 have none"):
        evaluate(tiny_model(REVIEWS), reviews([*LABELS[:-2], None, None]), device="cpu")


def test_a_long_split_is_predicted_in_chunks(monkeypatch):
    model = tiny_model(REVIEWS)
    whole = evaluate(model, reviews(), device="cpu")
    monkeypatch.setattr("lightbert.tasks.predict.evaluation._CHUNK", 4)
    parts = evaluate(model, reviews(), device="cpu")
    assert parts.tokens == whole.tokens
    assert [said["label"] for said in parts.predictions] == [said["label"] for said in whole.predictions]


def test_truncated_texts_are_counted():
    result = evaluate(tiny_model(REVIEWS, length=5), reviews(), device="cpu")
    assert result.cut == 3


KINDS = {
    "labels": (Labels(("x", "y")), [Example("good", label=("x",)), Example("bad", label=())], "micro_f1"),
    "regress": (Regress(0.0, 5.0), [Example("good", label=1.0), Example("bad film", label=4.0)], "pearson"),
    "tokens": (Tokens(("O", "B-X")), [TaggedSentence(("good", "film"), ("O", "B-X"))], "f1"),
    "spans": (
        Spans(stride=2, max_query=4, null_threshold=0.0),
        [
            Question("good ?", "the film was good", (Answer("film", 4),), id="a"),
            Question("bad ?", "the film was the film was good . the film was bad", (), id="b"),
        ],
        "f1",
    ),
}


def test_every_kind_of_task_is_evaluated_and_reported(tmp_path):
    for name in KINDS:
        kind, examples, metric = KINDS[name]
        result = evaluate(tiny_model(kind), task(kind, examples), device="cpu")
        assert 0 <= abs(result.metrics[metric]) <= 1
        content = json.loads(json.dumps(result.to_json()))
        assert {"metrics", "most_wrong", "examples", "seconds"} <= content.keys()
        page = result.to_markdown()
        assert all(f"| {name} | {value:.4f} |" in page for name, value in result.metrics.items())
        write(result, tmp_path / "out")
        lines = (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
        assert len(lines) == len(examples)
        assert "true" in json.loads(lines[0])


def test_a_file_in_place_of_the_report_folder_is_an_error(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="must be a folder, but is a file"):
        write(evaluate(tiny_model(REVIEWS), reviews(), device="cpu"), tmp_path / "out")


def test_an_imported_model_is_evaluated_by_its_label_names():
    model = tiny_model(None, "classify", labels=2)
    with pytest.raises(InputError, match="among those of the model, LABEL_0, LABEL_1"):
        evaluate(model, reviews(), device="cpu")
    named = evaluate(model, reviews(), device="cpu", labels=("negative", "positive")).metrics
    model.labels = ("negative", "positive")
    assert evaluate(model, reviews(), device="cpu").metrics == named
    with pytest.raises(InputError, match="2 outputs and requires as many labels, got 3: a, b, c"):
        evaluate(model, reviews(), device="cpu", labels=("a", "b", "c"))


def test_the_kind_of_an_imported_model_follows_from_its_head():
    for head, settings, like, kind in [
        ("tokens", {"labels": 2}, None, Tokens(("LABEL_0", "LABEL_1"))),
        ("regress", {}, None, Regress(float("-inf"), float("inf"), scaled=False)),
        ("regress", {}, Regress(0.0, 5.0), Regress(0.0, 5.0, scaled=False)),
        ("span", {}, None, Spans()),
        ("beam", {}, Spans(null_threshold=1.5), Spans("beam", null_threshold=1.5)),
        ("classify", {"labels": 2}, Labels(("x", "y")), Labels(("LABEL_0", "LABEL_1"))),
    ]:
        assert kind_of_model(tiny_model(None, head, **settings), like=like) == kind


def test_renaming_labels_keeps_the_kind_of_task():
    model = tiny_model(Labels(("x", "y")))
    assert kind_of_model(model, labels=("a", "b")) == Labels(("a", "b"))
    assert kind_of_model(tiny_model(REVIEWS), labels=("a", "b"), like=Labels(("x", "y"))) == Classify(("a", "b"))


def test_a_model_whose_head_was_removed_has_no_task():
    model = tiny_model(REVIEWS)
    del model.heads["classify"]
    with pytest.raises(InputError, match="no head for a task"):
        kind_of_model(model)
