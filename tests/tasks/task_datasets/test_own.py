"""Custom tables as tasks: inferred kinds and labels, splits, and invalid input."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lightbert.config import from_mapping
from lightbert.errors import InputError
from lightbert.tasks.datasets.own import own_task
from lightbert.tasks.datasets.own_files import Files, separator_of_joined
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.kinds.spans import Spans
from parquet import write_parquet

TOPICS = "body,topic\nBall lost,sports\nVote won,politics\nGoal,sports\n"


def written(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def topics(folder: Path, **more) -> Files:
    return Files(train=written(folder, "train.csv", TOPICS), text="body", label="topic", **{"hold_out": 0.0} | more)


def scores(folder: Path, cells: list[str], **more) -> Files:
    rows = "".join(f"text {number},{cell}\n" for number, cell in enumerate(cells))
    return Files(train=written(folder, "train.csv", f"text,label\n{rows}"), hold_out=0.0, **more)


def test_labels_are_sorted_and_rows_become_examples(tmp_path):
    task = own_task(topics(tmp_path))
    assert task.name == "own"
    assert task.kind == Classify(("politics", "sports"))
    assert task.metric == "accuracy"
    assert list(task.splits) == ["train"]
    assert task.examples("train") == [
        Example("Ball lost", None, "sports", "2"),
        Example("Vote won", None, "politics", "3"),
        Example("Goal", None, "sports", "4"),
    ]


def test_pairs_have_a_second_text(tmp_path):
    path = written(tmp_path, "a.tsv", 'a\tb\tlabel\n"one\ttwo\tyes\nthree\tfour\tno\n')
    task = own_task(Files(train=path, text="a", text_b="b", hold_out=0.0))
    assert [(each.text, each.text_b) for each in task.examples("train")] == [('"one', "two"), ("three", "four")]


def test_dev_and_test_files_are_read_on_request(tmp_path):
    dev = written(tmp_path, "dev.jsonl", '{"body": "Match", "topic": "sports"}\n')
    test = written(tmp_path, "test.jsonl", '{"body": "Law"}\n{"body": "Cup", "topic": "sports"}\n')
    task = own_task(topics(tmp_path, dev=dev, test=test))
    assert task.examples("dev") == [Example("Match", None, "sports", "1")]
    assert [example.label for example in task.examples("test")] == [None, "sports"]
    Path(dev).unlink()
    with pytest.raises(InputError, match="not found"):
        task.examples("dev")


@pytest.mark.parametrize("labelled", [True, False])
def test_a_test_file_in_parquet_has_labels_if_there_are_any(tmp_path, labelled):
    columns = {"body": ["Law"], "topic": ["politics"]} if labelled else {"body": ["Law"]}
    write_parquet(tmp_path / "test.parquet", columns)
    task = own_task(topics(tmp_path, test=str(tmp_path / "test.parquet")))
    assert [example.label for example in task.examples("test")] == ["politics" if labelled else None]


def test_an_empty_label_of_a_test_file_is_unknown(tmp_path):
    task = own_task(topics(tmp_path, test=written(tmp_path, "test.csv", "body,topic\nLaw,\n")))
    assert [example.label for example in task.examples("test")] == [None]


@pytest.mark.parametrize(
    ("cells", "expected"), [(["a; b", "", "b"], [("a", "b"), (), ("b",)]), (["", ""], [None, None])]
)
def test_an_empty_set_of_labels_in_a_test_file_is_known_if_another_one_is(tmp_path, cells, expected):
    rows = "".join(f"text,{cell}\n" for cell in cells)
    test = written(tmp_path, "test.csv", f"text,label\n{rows}")
    task = own_task(scores(tmp_path, ["a", "b"], kind="labels", test=test))
    assert [example.label for example in task.examples("test")] == expected


def test_many_distinct_fractions_mean_regression(tmp_path):
    task = own_task(scores(tmp_path, [f"{number / 4}" for number in range(20)]))
    assert task.kind == Regress(0.0, 4.75)
    assert task.metric == "pearson"
    assert task.examples("train")[1].label == 0.25


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param([str(number) for number in range(77)], id="whole numbers, however many"),
        pytest.param(["0.0", "1.0"] * 20, id="whole numbers written as fractions"),
        pytest.param(["0.5", "1"] * 20, id="few fractions, often"),
        pytest.param(["a", "b", "1.5"], id="not only numbers"),
        pytest.param(["1_0", "1_5", "2_5"], id="what only Python takes for numbers"),
        pytest.param(["nan", "inf", "0.5"] * 4, id="what is not finite"),
    ],
)
def test_other_labels_mean_classification(tmp_path, cells):
    assert isinstance(own_task(scores(tmp_path, cells)).kind, Classify)


def test_numbers_may_have_a_decimal_comma(tmp_path):
    path = tmp_path / "comma.csv"
    path.write_text("text;label\n" + "".join(f"text {number};{number},5\n" for number in range(20)))
    task = own_task(Files(train=str(path), separator=";"))
    assert (task.kind.name, task.kind.low, task.kind.high) == ("regress", 0.5, 19.5)


def test_number_classes_are_sorted_as_numbers(tmp_path):
    assert own_task(scores(tmp_path, ["10", "2", "1"])).kind == Classify(("1", "2", "10"))


def test_the_kind_can_be_chosen(tmp_path):
    assert own_task(scores(tmp_path, ["1", "2", "5"], kind="regress")).kind == Regress(1.0, 5.0)
    assert own_task(scores(tmp_path, ["0.1", "0.2", "0.3"], kind="classify")).kind == Classify(("0.1", "0.2", "0.3"))


def test_lists_mean_a_multi_label_task(tmp_path):
    rows = [{"text": "one", "labels": ["b", "a", "b"]}, {"text": "two", "labels": []}]
    path = written(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    task = own_task(Files(train=path, hold_out=0.0))
    assert task.kind == Labels(("a", "b"))
    assert task.metric == "micro_f1"
    assert [example.label for example in task.examples("train")] == [("b", "a"), ()]


def test_parquet_lists_mean_a_multi_label_task(tmp_path):
    write_parquet(tmp_path / "a.parquet", {"text": ["one", "two"], "label": [[1, 2], [2]]})
    assert own_task(Files(train=str(tmp_path / "a.parquet"), hold_out=0.0)).kind == Labels(("1", "2"))


def test_a_text_cell_can_contain_several_labels(tmp_path):
    task = own_task(scores(tmp_path, ["a; b", "", "b"], kind="labels"))
    assert [example.label for example in task.examples("train")] == [("a", "b"), (), ("b",)]


def test_labels_of_json_and_parquet_have_the_same_names_as_in_csv(tmp_path):
    path = written(tmp_path, "a.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": 0.0}\n')
    assert own_task(Files(train=path, hold_out=0.0)).kind == Classify(("0", "1"))
    path = written(tmp_path, "b.jsonl", '{"text": "a", "label": true}\n{"text": "b", "label": false}\n')
    assert own_task(Files(train=path, hold_out=0.0)).kind == Classify(("false", "true"))


def test_the_kind_of_a_model_is_used_without_training_data(tmp_path):
    path = written(tmp_path, "dev.csv", "text,label\none,b\n")
    task = own_task(path, kind=Classify(("a", "b", "c")))
    assert list(task.splits) == ["dev"]
    assert [example.label for example in task.examples("dev")] == ["b"]
    with pytest.raises(InputError, match=r"add data\.train=FILE"):
        own_task(path)
    with pytest.raises(InputError, match="kind 'spans'"):
        own_task(path, kind=Spans())


def test_a_folder_is_read_by_the_names_of_its_files(tmp_path):
    for name, text in {
        "train.csv": "one,a\ntwo,b\n",
        "my-dev.csv": "three,a\n",
        ".test.swp": "",
        "notes": "",
    }.items():
        written(tmp_path, name, f"text,label\n{text}")
    (tmp_path / "dev").mkdir()
    task = own_task(str(tmp_path))
    assert list(task.splits) == ["train", "dev"]
    assert [example.text for example in task.examples("dev")] == ["three"]
    written(tmp_path, "dev.csv", "")
    with pytest.raises(InputError, match=r"must contain one file per split, got dev\.csv, my-dev\.csv"):
        own_task(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="must contain a file named train, dev or test"):
        own_task(str(tmp_path / "empty"))


def error_message(files: Files, split: str = "train") -> str:
    with pytest.raises(InputError) as error:
        own_task(files).examples(split)
    return str(error.value)


def test_a_dev_label_that_is_not_in_training_is_an_error_with_file_and_line(tmp_path, capsys):
    dev = written(tmp_path, "dev.csv", "body,topic\nMatch,sports\nCup,sprots\n")
    assert error_message(topics(tmp_path, dev=dev), "dev") == (
        f"line 3 of '{dev}' has the label 'sprots', which must occur in the training data (did you mean 'sports'?); "
        "fix it, or skip such rows with data.bad_rows=skip"
    )
    task = own_task(topics(tmp_path, dev=dev, bad_rows="skip"))
    assert [example.text for example in task.examples("dev")] == ["Match"]
    assert capsys.readouterr().err.startswith(f"skipped 1 bad row of '{dev}'; the first: line 3")


def test_an_unknown_label_of_several_is_an_error(tmp_path):
    dev = written(tmp_path, "dev.csv", "text,label\none,a;c\n")
    assert "line 2" in error_message(scores(tmp_path, ["a;b", "b"], kind="labels", dev=dev), "dev")


def test_a_bad_row_is_an_error_with_file_and_line_or_skipped(tmp_path, capsys):
    for row, reason in [
        (b"Ball,", "line 5 of 'PATH' has no label"),
        (b" ,sports", "line 5 of 'PATH' has no text in column 'body'"),
        (b"B\xe4ll,sports", "line 5 of 'PATH' is not UTF-8 (byte 0xe4)"),
        (b"Ball,sports,1", "line 5 of 'PATH' has 3 fields, but the header has 2"),
    ]:
        path = written(tmp_path, "a.csv", TOPICS.encode() + row + b"\n")
        files = Files(train=path, text="body", label="topic", hold_out=0.0)
        assert error_message(files).startswith(reason.replace("PATH", path))
        task = own_task(Files(train=path, text="body", label="topic", hold_out=0.0, bad_rows="skip"))
        assert len(task.examples("train")) == 3
        assert capsys.readouterr().err.count("skipped 1 bad row") == 1


def test_a_non_numeric_label_is_a_bad_row_of_a_regression(tmp_path):
    sentence = error_message(scores(tmp_path, ["1", "n/a", "2"], kind="regress"))
    assert "line 3" in sentence
    assert "has the label 'n/a', which must be a number" in sentence


def test_one_non_numeric_cell_does_not_change_a_regression_to_classification(tmp_path):
    assert "'n/a', which must be a number" in error_message(scores(tmp_path, [f"{n}.5" for n in range(20)] + ["n/a"]))


def test_a_missing_column_is_an_error_that_names_its_setting(tmp_path):
    path = written(tmp_path, "a.csv", TOPICS)
    assert error_message(Files(train=path)).endswith("has no column 'text', only body, topic; set data.text=COLUMN")
    assert error_message(Files(train=path, text="body", label="topics")).endswith(
        "did you mean 'topic'? Set data.label=topic"
    )
    assert "set data.text_b=COLUMN" in error_message(Files(train=path, text="body", text_b="second", label="topic"))


def test_an_empty_file_is_an_error(tmp_path):
    assert "is empty" in error_message(Files(train=written(tmp_path, "a.csv", "")))
    assert "is empty" in error_message(Files(train=written(tmp_path, "b.csv", "text,label\n")))
    assert "is empty" in error_message(topics(tmp_path, dev=written(tmp_path, "dev.csv", "")), "dev")


def test_fewer_than_two_labels_are_an_error(tmp_path):
    assert "training requires at least two labels, got a" in error_message(scores(tmp_path, ["a", "a"]))
    assert "regression requires at least two distinct numbers, got only 1.5" in error_message(
        scores(tmp_path, ["1.5", "1.5"], kind="regress")
    )
    assert "at least two labels, got none" in error_message(scores(tmp_path, ["", ""], kind="labels"))


def test_a_table_without_a_header_in_another_encoding_is_read(tmp_path):
    (tmp_path / "a.csv").write_bytes("größer,x\nkleiner,y\nschön,x\n".encode("latin-1"))
    files = Files(train=str(tmp_path / "a.csv"), text="0", label="1", header="none", encoding="latin-1", hold_out=0)
    task = own_task(files)
    assert [(example.text, example.label) for example in task.examples("train")][::2] == [
        ("größer", "x"),
        ("schön", "x"),
    ]
    assert task.reading["header"] == "none"
    assert "encoding" not in task.reading
    assert "set data.encoding, usually latin-1, or skip such rows" in error_message(replace(files, encoding="utf-8"))


def test_a_file_of_an_unknown_format_is_an_error(tmp_path):
    assert "must end in .csv" in error_message(Files(train=written(tmp_path, "a.xls", "x")))
    assert "not found" in error_message(Files(train=str(tmp_path / "a.csv")))


def test_settings_out_of_range_are_errors():
    with pytest.raises(InputError, match=r"hold_out must be in \[0, 1\), got 1\.0"):
        Files(hold_out=1.0)
    with pytest.raises(InputError, match=r"data\.label_separator must not be empty"):
        Files(label_separator="")
    with pytest.raises(InputError, match="'skip'"):
        from_mapping(Files, {"bad_rows": "skp"})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"text": "c", "label": NaN}', "has the label nan, which must be a finite number"),
        ('{"text": 7, "label": "x"}', "has 7 in column 'text', which must be a text"),
    ],
)
def test_an_invalid_label_or_text_is_an_error_that_shows_the_cell(tmp_path, row, reason):
    rows = ['{"text": "a", "label": "x"}', '{"text": "b", "label": "y"}', row]
    with pytest.raises(InputError, match=f"line 3 of '.*' {reason}"):
        own_task(Files(train=written(tmp_path, "train.jsonl", "\n".join(rows))))


def test_a_folder_instead_of_a_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match="is a folder; give the path of a file in it"):
        own_task(Files(train=str(tmp_path)))


def test_missing_numbers_do_not_change_a_regression_to_classification(tmp_path):
    cells = [f"{number / 4}" for number in range(20)] + ["nan", "NA", ""] * 10
    assert "has the label 'nan', which must be a number" in error_message(scores(tmp_path, cells))
    files = scores(tmp_path, cells, bad_rows="skip")
    task = own_task(files)
    assert task.kind == Regress(0.0, 4.75)
    assert task.examples("train").skipped == 30


def test_labels_that_seem_to_be_joined_are_recognized():
    for names, separator in [
        (("a", "b", "a|b"), "|"),
        (("a; b", "a; c", "b; c", "a"), ";"),
        (("sea/land", "sea", "land"), "/"),
        (("New York, NY", "Albany, NY"), ""),
        (("a", "b"), ""),
    ]:
        assert separator_of_joined(names) == separator


def test_spaces_around_the_names_of_columns_are_stripped(tmp_path):
    (tmp_path / "my.csv").write_text("text, label\none, a\ntwo, b\n")
    task = own_task(Files(train=str(tmp_path / "my.csv"), hold_out=0.0))
    assert [example.label for example in task.examples("train")] == ["a", "b"]
