"""The suffix of --out selects the format of the predictions."""

import csv
import io
import json

import pytest
from tiny_classifiers import tiny_model, write_tiny_model

from lightbert import cli
from lightbert.data.table_writer import record_file
from lightbert.errors import InputError
from lightbert.models import folder
from lightbert.tasks.kinds.classify import Classify, Labels

RECORDS = (
    {"text": 'one, "two"\nthree\tfour', "label": "a", "probabilities": {"a": 0.75, "b": 0.25}},
    {"text": "five", "id": 7, "label": None, "labels": ["a", "b"], "spans": [{"start": 0}], "known": True},
)


def test_a_csv_file_has_a_column_for_every_field_of_every_record(tmp_path):
    with record_file(tmp_path / "my.csv", "|") as write:
        for record in RECORDS:
            write(record)
    first, second = csv.DictReader(io.StringIO((tmp_path / "my.csv").read_text(), newline=""))
    assert list(first) == ["text", "label", "probabilities.a", "probabilities.b", "id", "labels", "spans", "known"]
    assert (first["text"], first["probabilities.a"], first["id"]) == (RECORDS[0]["text"], "0.75", "")
    assert (second["label"], second["labels"], second["known"]) == ("", "a|b", "true")
    assert json.loads(second["spans"]) == [{"start": 0}]


def test_a_tsv_file_has_one_line_per_record_without_quotes(tmp_path):
    with record_file(tmp_path / "my.TSV") as write:
        for record in RECORDS:
            write(record)
    header, first, second = (tmp_path / "my.TSV").read_text().splitlines()
    assert header.split("\t")[0] == "text"
    assert first.split("\t")[0] == 'one, "two" three four'
    assert second.split("\t")[4:6] == ["7", "a;b"]


def test_a_file_is_not_written_if_a_record_fails(tmp_path):
    for name in ["my.csv", "my.tsv", "my.jsonl"]:
        with pytest.raises(AttributeError), record_file(tmp_path / name) as write:
            write(RECORDS[0]).stop()
        assert list(tmp_path.iterdir()) == []


def test_an_unknown_suffix_is_an_error_before_the_model_is_read(tmp_path, capsys):
    assert cli.main(["predict", str(tmp_path / "missing"), "good", "--out", "my.xlsx"]) == 1
    error = capsys.readouterr().err
    assert "the name of an output file must end in one of .jsonl, .ndjson, .csv, .tsv, got 'my.xlsx'" in error
    with pytest.raises(InputError, match=r"must end in one of \.jsonl"), record_file(tmp_path / "my"):
        pass


def test_written_predictions_can_be_evaluated_like_the_training_table(tmp_path, capsys):
    model = tiny_model(Labels(("a", "b")))
    model.task["data"] = {"text": "body", "label_separator": "|"}
    folder.save(model, tmp_path / "model")
    (tmp_path / "my.csv").write_text("body\ngood film\nbad\nthe film was good\n")
    out = tmp_path / "predicted.csv"
    assert cli.main(["predict", str(tmp_path / "model"), "--file", str(tmp_path / "my.csv"), "--out", str(out)]) == 0
    capsys.readouterr()
    options = ("--data", str(out), "--label", "labels", "--json")
    assert cli.main(["evaluate", str(tmp_path / "model"), *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["metrics"]["accuracy"] == 1.0


def test_the_columns_of_an_earlier_prediction_are_kept_when_its_file_is_predicted_again(tmp_path):
    folder.save(tiny_model(Classify(("bad", "good"))), tmp_path / "model")
    (tmp_path / "in.csv").write_text("text,label,probabilities.good\ngood film,mine,0.125\n")
    given = ["predict", str(tmp_path / "model"), "--file", str(tmp_path / "in.csv"), "--out", str(tmp_path / "out.csv")]
    assert cli.main(given) == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    assert (row["input_label"], row["input_probabilities.good"]) == ("mine", "0.125")
    assert row["probabilities.good"] != "0.125"


def test_a_second_text_for_a_model_of_single_texts_is_an_error(tmp_path, capsys):
    model = tiny_model(Classify(("bad", "good")))
    model.task["pairs"] = False
    folder.save(model, tmp_path / "single")
    (tmp_path / "my.csv").write_text("text,text_b\ngood,bad\n")
    sentence = "the model was fine-tuned on single texts, got the pair 'good' and 'bad'; leave out the second text"
    for arguments in (("good", "--pair", "bad"), ("--file", str(tmp_path / "my.csv"), "--text-b", "text_b")):
        assert cli.main(["predict", str(tmp_path / "single"), *arguments]) == 1
        output = capsys.readouterr()
        assert (output.out, sentence in output.err) == ("", True)
    # A column that happens to have this name is not a second text of the model.
    assert cli.main(["predict", str(tmp_path / "single"), "--file", str(tmp_path / "my.csv")]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert cli.main(["predict", str(tmp_path / "single"), "good"]) == 0
    assert json.loads(capsys.readouterr().out)["probabilities"] == alone["probabilities"]


def test_a_model_without_this_information_reads_single_texts_and_pairs(tmp_path):
    model = str(write_tiny_model(tmp_path / "model", Classify(("bad", "good"))))
    assert cli.main(["predict", model, "good", "--pair", "bad"]) == 0
    assert cli.main(["predict", model, "good"]) == 0
