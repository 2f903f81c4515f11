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
    assert [table.title for finding in result.findings for table in finding.tables][-1] == "Calibration"
    assert evaluate(model, reviews(), device="cpu", worst=1).findings[-1].tables[0].title == "Most wrong"


def test_predictions_keep_the_order_of_the_examples_and_do_not_depend_on_the_batch():
    model = tiny_model(REVIEWS)
    together = evaluate(model, reviews(), device="cpu")
    for place, text in enumerate(TEXTS):
        alone = evaluate(model, task(REVIEWS, [Example(text, label=LABELS[place])]), device="cpu")
        assert alone.predictions[0]["probability"] == pytest.approx(
            together.predictions[place]["probability"], abs=1e-5
        )


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


def test_the_report_is_written_as_markdown_and_json(tmp_path):
    result = evaluate(tiny_model(REVIEWS), reviews(), device="cpu", name="some/model")
    files = write(result, tmp_path / "deep" / "out")
    assert {path.name for path in files} == {"report.json", "report.md", "predictions.jsonl"}
    found = (tmp_path / "deep" / "out").glob("[!.]*")
    assert sorted(path.name for path in found) == sorted(path.name for path in files)
    assert json.loads(files[1].read_text())["metrics"] == result.metrics
    page = (tmp_path / "deep" / "out" / "report.md").read_text()
    for heading in ("# own, dev: some/model", "## Metrics", "## Confusion matrix", "## Calibration", "## Most wrong"):
        assert heading in page
    first = json.loads((tmp_path / "deep" / "out" / "predictions.jsonl").read_text().splitlines()[0])
    assert first["text"] == TEXTS[0]
    assert first["true"] == LABELS[0]
    assert first["label"] == result.predictions[0]["label"]


def test_squad_answers_are_also_written_in_squad_format(tmp_path):
    kind, examples, _ = KINDS["spans"]
    result = evaluate(tiny_model(kind), task(kind, examples), device="cpu")
    write(result, tmp_path)
    answers = json.loads((tmp_path / "predictions.json").read_text())
    assert answers == {example.id: said["answer"] for example, said in zip(examples, result.predictions, strict=True)}


def test_a_glue_test_set_is_written_in_leaderboard_format(tmp_path):
    kind = Classify(("entailment", "not_entailment"))
    examples = [Example("good film", "bad film", id="7"), Example("a film", "the film", id="8")]
    result = evaluate(tiny_model(kind), task(kind, [], name="rte", test=examples), "test", device="cpu")
    files = write(result, tmp_path)
    assert [path.name for path in files] == ["predictions.jsonl", "RTE.tsv"]
    labels = [said["label"] for said in result.predictions]
    assert (tmp_path / "RTE.tsv").read_text() == f"index\tprediction\n7\t{labels[0]}\n8\t{labels[1]}\n"


def test_a_file_in_place_of_the_report_folder_is_an_error(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="must be a folder, but is a file"):
        write(evaluate(tiny_model(REVIEWS), reviews(), device="cpu"), tmp_path / "out")


def test_a_label_unknown_to_the_model_is_an_error():
    with pytest.raises(InputError, match="among those of the model, negative, positive, got 'mixed'"):
        evaluate(tiny_model(REVIEWS), reviews([*LABELS[:-1], "mixed"]), device="cpu")


def test_a_model_for_another_kind_of_task_is_an_error():
    with pytest.raises(InputError, match="own requires a model for tasks of kind 'classify', got one for 'regress'"):
        evaluate(tiny_model(Regress(0.0, 1.0)), reviews(), device="cpu")


def test_a_model_without_a_head_is_an_error():
    with pytest.raises(InputError, match="no head for a task: fine-tune it"):
        evaluate(tiny_model(None), reviews(), device="cpu")


def test_a_model_without_a_tokenizer_is_an_error():
    model = tiny_model(REVIEWS)
    model.tokenizer = None
    with pytest.raises(InputError, match="has no tokenizer"):
        evaluate(model, reviews(), device="cpu")


def test_an_unknown_split_is_an_error_with_a_suggestion():
    with pytest.raises(InputError, match="did you mean 'dev'"):
        evaluate(tiny_model(REVIEWS), reviews(), "dv", device="cpu")


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
