"""Evaluation and prediction read files as fine-tuning did, unless options say otherwise."""

import json

import pytest
from tiny_classifiers import tiny_model
from tiny_tasks import SETTINGS, write_model

import lightbert
from extras import needs_metrics
from lightbert import cli
from lightbert.interop import huggingface
from lightbert.models import folder
from lightbert.tasks.kinds.classify import Classify

TOPICS = "body;topics\ngood film;a|b\nbad film;a\nthe film;b\nwas good;a|b\na bad;b\nthe good film;a\n"


@pytest.fixture
def run(capsys):
    """Run a command; return its exit code, the JSON object on stdout (None after an error), and stderr."""

    def call(*arguments):
        code = cli.main([*map(str, arguments)])
        output = capsys.readouterr()
        return code, json.loads(output.out) if code == 0 else None, output.err

    return call


@pytest.fixture
def finetune(run, tmp_path):
    """Fine-tune a tiny model on a file with two steps; return its folder and the report."""

    def train(data, *keys):
        start = (f"model={write_model(tmp_path / 'start')}", f"out={tmp_path / 'run'}", *SETTINGS, "steps=2")
        code, report, error = run("finetune", "classify", *start, f"data.train={data}", *keys, "--json")
        assert code == 0, error
        return tmp_path / "run" / "final", report

    return train


@pytest.fixture
def topics(tmp_path):
    path = tmp_path / "topics.csv"
    path.write_text(TOPICS)
    return path


MULTILABEL = ("data.text=body", "data.label=topics", "data.kind=labels", "data.label_separator=|", "data.separator=;")


def test_a_multilabel_model_is_evaluated_on_its_own_file_without_options(run, finetune, topics):
    model, _ = finetune(topics, *MULTILABEL)
    code, report, error = run("evaluate", model, "--data", topics, "--json")
    assert code == 0, error
    assert (report["examples"], report["skipped"]) == (6, 0)
    # Cells were split: there are eight labels in six rows.
    assert sum(rates["true"] for rates in report["labels"].values()) == 8


def test_options_override_how_the_file_was_read(run, finetune, topics, tmp_path):
    model, _ = finetune(topics, *MULTILABEL)
    other = tmp_path / "other.csv"
    other.write_text("content,all\ngood film,a/b\nbad film,b\n")
    columns = ("--text", "content", "--label", "all", "--separator", ",", "--label-separator", "/")
    code, report, error = run("evaluate", model, "--data", other, *columns, "--json")
    assert code == 0, error
    assert report["examples"] == 2
    code, _, error = run("evaluate", model, "--data", other, *columns[:-2], "--json")
    assert code == 1
    assert "has the label 'a/b', which must occur in the training data" in error


def test_prediction_reads_the_columns_of_fine_tuning(run, finetune, topics, tmp_path):
    model, _ = finetune(topics, *MULTILABEL)
    out = tmp_path / "predictions.jsonl"
    code, report, error = run("predict", model, "--file", topics, "--out", out, "--json")
    assert (code, report["predictions"]) == (0, 6), error
    assert json.loads(out.read_text().splitlines()[0])["body"] == "good film"
    assert lightbert.load(model).predict({"body": "good film"}) == lightbert.load(model).predict("good film")
    # Lines and records with the default names are read too.
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text": "good"}\n{"body": "bad"}\n')
    code, report, error = run("predict", model, "--file", lines, "--out", out, "--json")
    assert (code, report["predictions"]) == (0, 2), error


@needs_metrics
def test_the_second_column_of_a_model_for_pairs_is_saved_with_it(run, finetune, tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("one,two,label\n" + "good,film,a\nbad,film,b\nthe,film,a\nwas,good,b\n" * 2)
    model, _ = finetune(path, "data.text=one", "data.text_b=two")
    assert run("evaluate", model, "--data", path, "--json")[1]["examples"] == 8
    out = tmp_path / "out.jsonl"
    assert run("predict", model, "--file", path, "--out", out, "--json")[1]["predictions"] == 8
    path.write_text("one,label\ngood,a\n")
    error = run("predict", model, "--file", path, "--out", out)[2]
    assert "has no column 'two', only 'one', 'label'; set its name with --text-b" in error


def test_the_columns_of_tags_are_saved_with_a_tagger(run, finetune, tmp_path):
    path = tmp_path / "tagged.txt"
    path.write_text("# text\nB-X good 1\nO film 2\n\nO bad 1\nB-X film 2\n\nO a 1\n\nB-X the 1\n")
    columns = ("data.word_column=1", "data.tag_column=0", "data.comments=#")
    model, _ = finetune(path, *columns)
    code, report, error = run("evaluate", model, "--data", path, "--json")
    assert (code, report and report["examples"]) == (0, 4), error
    code, _, error = run("evaluate", model, "--data", path, "--tag-column", "2", "--json")
    assert (code, "has the tag '1'" in error) == (1, True)


@needs_metrics
def test_skipped_rows_are_in_the_reports(run, finetune, tmp_path):
    path = tmp_path / "my.csv"
    path.write_text("text,label\n" + "good film,a\nbad,b\n" * 4 + "film,\nthe,\n")
    model, report = finetune(path, "data.bad_rows=skip", "data.hold_out=0.3")
    assert report["settings"][0]["runs"][0]["skipped"] == {"train": 2, "dev": 2}
    code, report, error = run("evaluate", model, "--data", path, "--bad-rows", "skip", "--json")
    assert (code, report and report["skipped"]) == (0, 2), error


def test_the_kind_of_labels_of_an_imported_classifier_can_be_given(run, tmp_path):
    data = tmp_path / "dev.csv"
    data.write_text("text,label\ngood film,x;y\nbad,\n")
    model = tiny_model(None, "classify", labels=2, hidden="gelu")
    model.labels = ("x", "y")
    huggingface.write(model, tmp_path / "theirs")
    assert "has the label 'x;y'" in run("evaluate", tmp_path / "theirs", "--data", data)[2]
    code, report, error = run("evaluate", tmp_path / "theirs", "--data", data, "--kind", "labels", "--json")
    assert code == 0, error
    assert report["metrics"].keys() == {"micro_f1", "macro_f1", "accuracy"}
    folder.save(tiny_model(Classify(("x", "y"))), tmp_path / "ours")
    error = run("evaluate", tmp_path / "ours", "--data", data, "--kind", "labels")[2]
    assert "kind must be 'classify', the kind of the model, got 'labels'; leave it out" in error
