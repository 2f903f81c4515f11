"""Invalid rows of GLUE files."""

import pytest
from glue_files import MNLI_TRAIN_HEADER, table

from lightbert.errors import InputError
from lightbert.tasks.datasets.glue import TABLE, read_file

RTE = "index\tsentence1\tsentence2\tlabel\n"
GOOD = "0\tA b.\tC d.\tentailment\n"


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "file.tsv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write


SHORT = {
    "qqp": table(["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], ["1", "2", "3", "Why?", "0"]),
    "qnli": table(["index", "question", "sentence", "label"], ["0", "Why?"]),
    "mnli": table(MNLI_TRAIN_HEADER, ["0", "1", "1e", "letters"]),
    "cola": "ab12\t1\t\tThe kettle sings.\nab12\t1\n",
}


def test_a_short_row_is_an_error_with_file_and_line(file):
    for name in SHORT:
        with pytest.raises(InputError, match=r"line 2 of '.*file.tsv' must have \d+ columns, has \d"):
            read_file(file(SHORT[name]), TABLE[name], labelled=True)


def test_a_bad_row_is_an_error_or_skipped_and_counted(file, capsys):
    for row, reason in [
        ("1\tA\tB\tmaybe", "has the label 'maybe', which must be one of entailment, not_entailment"),
        ("1\tA\tB\tentailment\tmore", "must have 4 columns, has 5"),
        (b"1\tA \xff\tB\tentailment", r"is not UTF-8 \(byte 0xff\)"),
    ]:
        row = row if isinstance(row, bytes) else row.encode()
        path = file(RTE.encode() + GOOD.encode() + row + b"\n2\tE\tF\tnot_entailment\n")
        with pytest.raises(InputError, match=rf"line 3 of '.*file.tsv' {reason}"):
            read_file(path, TABLE["rte"], labelled=True)
        examples = read_file(path, TABLE["rte"], labelled=True, bad_rows="skip")
        assert [example.id for example in examples] == ["0", "2"]
        assert "skipped 1 bad row of" in capsys.readouterr().err


def test_a_score_out_of_range_is_a_bad_row(file):
    for score in ["5.1", "-0.2", "nan", "high", ""]:
        path = file(table(["index", "sentence1", "sentence2", "score"], ["0", "A", "B", score]))
        with pytest.raises(InputError, match=rf"has the score '{score}', which must be a number in \[0, 5\]"):
            read_file(path, TABLE["stsb"], labelled=True)


def test_rows_without_an_index_are_numbered_by_their_place_even_when_one_is_skipped(file):
    path = file("sentence\tlabel\ngood \t1\nbad\nfine \t1\n")
    examples = read_file(path, TABLE["sst2"], labelled=True, bad_rows="skip")
    assert [example.id for example in examples] == ["0", "2"]


def test_windows_line_ends_are_stripped_from_labels(file):
    path = file((RTE + GOOD).replace("\n", "\r\n"))
    assert read_file(path, TABLE["rte"], labelled=True)[0].label == "entailment"


def test_only_a_line_feed_ends_a_row(file):
    path = file(RTE + "0\tA\u2028b\x0cc\x85d\tC\tentailment\n\n")
    assert [example.text for example in read_file(path, TABLE["rte"], labelled=True)] == ["A\u2028b\x0cc\x85d"]


def test_an_invalid_file_is_a_one_line_error(file):
    for content, sentence in [
        ("", "the first line of .* is empty"),
        (RTE, "is empty; it must contain at least one row"),
        ("a\tb\n", "must have a column 'sentence1' and 'sentence2', but its first line is 'a, b'"),
        (b"\xff\tb\n", "the first line of .* is not UTF-8"),
        ("index\tsentence1\tsentence2\n0\tA\tB\n", "must have a label column, 'label'"),
    ]:
        with pytest.raises(InputError, match=sentence):
            read_file(file(content), TABLE["rte"], labelled=True)
