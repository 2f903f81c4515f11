"""Rows of table files: values, line numbers, and errors for bad rows."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightbert.data.table_writer import record_file
from lightbert.data.tables import Table, TableOptions
from lightbert.errors import InputError
from parquet import write_parquet

NEEDED = {"data.text": "text", "data.label": "label"}

texts = st.text(st.characters(codec="utf-8"), max_size=12)


def write_file(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def error_message(path, needed=None, **options):
    with pytest.raises(InputError) as error:
        list(Table(path, NEEDED if needed is None else needed, TableOptions(**options)))
    return str(error.value)


def test_a_quoted_field_may_contain_separators_quotes_and_line_endings(tmp_path):
    path = write_file(tmp_path, "a.csv", 'text,label\n"one, ""two""\nthree",x\nplain,y\n')
    assert list(Table(path, NEEDED)) == [
        (2, {"text": 'one, "two"\nthree', "label": "x"}),
        (4, {"text": "plain", "label": "y"}),
    ]


def test_quotes_of_spreadsheets_are_removed_from_tsv(tmp_path):
    path = write_file(tmp_path, "excel.tsv", 'text\tlabel\n"a ""good"" film"\tx\n"so" and "so"\ty\n"said"\tz\n')
    assert [row["text"] for _, row in Table(path)] == ['a "good" film', '"so" and "so"', '"said"']
    path = write_file(tmp_path, "all.tsv", '"text"\t"label"\n"a ""good"" film"\t"x"\n"said"\t"y"\n')
    assert [row for _, row in Table(path)] == [{"text": 'a "good" film', "label": "x"}, {"text": "said", "label": "y"}]


def test_other_quotes_have_no_special_meaning_in_tsv(tmp_path):
    path = write_file(tmp_path, "a.tsv", 'text\tlabel\n"open\tx\n5" pipe, long\ty\n')
    assert [values["text"] for _, values in Table(path, NEEDED)] == ['"open', '5" pipe, long']


def test_a_byte_order_mark_and_carriage_returns_are_stripped_from_tables(tmp_path):
    path = write_file(tmp_path, "a.csv", b"\xef\xbb\xbftext,label\r\none,x\r\n\r\ntwo,y\r\n")
    assert list(Table(path, NEEDED)) == [(2, {"text": "one", "label": "x"}), (4, {"text": "two", "label": "y"})]


def test_another_separator_is_suggested_if_there_is_only_one_column(tmp_path):
    for separator in (";", "|", "\t"):
        path = write_file(tmp_path, "a.csv", f"text{separator}label\none{separator}x\n")
        assert error_message(path).endswith(
            f"if its fields are separated by {separator!r}, set data.separator={separator!r}"
        )


def test_the_separator_of_csv_can_be_chosen(tmp_path):
    path = write_file(tmp_path, "a.csv", "text;label\none, two;x\n")
    assert list(Table(path, NEEDED, TableOptions(separator=";"))) == [(2, {"text": "one, two", "label": "x"})]
    assert error_message(path, separator=";;").endswith("got ';;'")


def test_a_json_line_keeps_its_types_and_extra_columns(tmp_path):
    path = write_file(
        tmp_path, "a.jsonl", '{"text": "one", "label": [1, "x"], "id": 7}\n\n{"text": "two", "label": 0}\n'
    )
    assert list(Table(path, NEEDED)) == [
        (1, {"text": "one", "label": [1, "x"], "id": 7}),
        (3, {"text": "two", "label": 0}),
    ]


def test_parquet_rows_are_numbered_and_only_needed_columns_are_read(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, {"id": [1, 2], "text": ["one", "two"], "label": [0.5, 1.5]})
    assert list(Table(path, NEEDED)) == [(1, {"text": "one", "label": 0.5}), (2, {"text": "two", "label": 1.5})]
    assert Table(path).columns() == ["id", "text", "label"]


def test_compressed_tables_are_read_like_plain_ones(tmp_path):
    for suffix, compress in ((".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)):
        path = write_file(tmp_path, f"a.csv{suffix}", compress(b"text,label\none,x\n"))
        assert list(Table(path, NEEDED)) == [(2, {"text": "one", "label": "x"})]


ROWS = [{"text": "größer, “so”", "label": "x"}, {"text": "two\nlines", "label": "y"}]


def test_tables_without_a_header_have_numbered_columns(tmp_path):
    for name, content in (("a.csv", 'one,x\n"two\nlines",y\n'), ("a.tsv", "one\tx\ntwo lines\ty\n")):
        table = Table(write_file(tmp_path, name, content), {"data.text": "0"}, TableOptions(header="none"))
        assert table.columns() == ["0", "1"]
        assert [(number, row["1"]) for number, row in table] == [(1, "x"), (2, "y")]
    path = write_file(tmp_path, "b.csv", "a good film,x\na bad film,y\n")
    remedy = "has no column 'text', only a good film, x; set data.text=COLUMN, or data.header=none if the first line"
    assert remedy in error_message(path)
    assert "has the column 'a' twice; rename one of them, or set data.header=none" in error_message(
        write_file(tmp_path, "c.csv", "a,a\n")
    )
    assert error_message(path, header="no") == "unknown value of data.header 'no'; did you mean 'none'?"


def test_files_in_other_encodings_are_read(tmp_path):
    content = 'text,label\n"größer, ""so""",x\n'
    expected = [(2, {"text": 'größer, "so"', "label": "x"})]
    for encoding in ("latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8-sig"):
        path = write_file(tmp_path, "a.csv", content.encode(encoding))
        assert list(Table(path, NEEDED, TableOptions(encoding=encoding))) == expected, encoding
    path = write_file(tmp_path, "a.csv.gz", gzip.compress(content.encode("utf-16")))
    assert list(Table(path, NEEDED, TableOptions(encoding="utf-16"))) == expected
    path = write_file(tmp_path, "a.csv", b"text,label\n\x81,x\n")
    assert error_message(path, encoding="cp1252") == f"'{path}' is not cp1252 at byte 11; set another data.encoding"
    for unknown in ("none", "rot13", "hex"):
        assert error_message(path, encoding=unknown).startswith("data.encoding must be an encoding such as utf-8")


def test_json_documents_are_read_in_the_forms_that_programs_write(tmp_path):
    columns = {name: [row[name] for row in ROWS] for name in ("text", "label")}
    for document in (ROWS, columns, {name: dict(zip("ab", cells, strict=True)) for name, cells in columns.items()}):
        path = write_file(tmp_path, "a.json", json.dumps(document, indent=1))
        assert list(Table(path, NEEDED)) == [(1, ROWS[0]), (2, ROWS[1])]
    path = write_file(tmp_path, "a.json.gz", gzip.compress("\n".join(map(json.dumps, ROWS)).encode()))
    assert list(Table(path, NEEDED)) == [(1, ROWS[0]), (2, ROWS[1])]
    path = write_file(tmp_path, "a.json", json.dumps([*ROWS, 3]))
    assert error_message(path).startswith(f"record 3 of '{path}' is not a JSON object")
    for content, problem in (("3", "must contain a list of objects"), ("[1,", "is not JSON (Expecting value")):
        path = write_file(tmp_path, "a.json", content)
        assert error_message(path).startswith(f"'{path}' {problem}")


def write_excel(path, rows):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def test_an_excel_file_has_the_cells_that_excel_writes_as_csv(tmp_path):
    path = write_excel(tmp_path / "a.xlsx", [["text", "label", None], ["größer\nso", 3], [], [0.5, True, None]])
    assert list(Table(path, NEEDED)) == [
        (2, {"text": "größer\nso", "label": "3"}),
        (4, {"text": "0.5", "label": "TRUE"}),
    ]
    assert [row["0"] for _, row in Table(path, options=TableOptions(header="none"))] == ["text", "größer\nso", "0.5"]
    assert error_message(path, {"data.text": "body"}).startswith(f"'{path}' has no column 'body', only text, label")
    for content in (b"PK", path.read_bytes()[:-100]):
        path = write_file(tmp_path, "b.xlsx", content)
        assert error_message(path).startswith(f"'{path}' is damaged or not an Excel file")


def test_an_excel_file_that_decompresses_to_gigabytes_is_an_error(tmp_path, monkeypatch):
    path = write_excel(tmp_path / "a.xlsx", [["text", "label"], ["x" * 30_000, "y"]])
    monkeypatch.setattr("lightbert.data.tables.MAX_DOCUMENT", 30_000)
    assert error_message(path) == f"'{path}' must have at most 30,000 bytes when decompressed; save it as CSV"


cells = st.text(st.characters(codec="utf-8", exclude_characters="\x00") | st.sampled_from('\r\n",\t; '), max_size=8)
names = cells.map(str.strip)


@given(st.lists(st.dictionaries(names, cells, max_size=4), max_size=4))
def test_what_is_written_is_read_back_equal(records):
    columns = list(dict.fromkeys(name for record in records for name in record))
    rows = [{name: record.get(name, "") for name in columns} for record in records]
    with tempfile.TemporaryDirectory() as folder:
        for name, expected in (("a.csv", rows), ("a.jsonl", records), ("a.tsv", spaced(rows))):
            with record_file(Path(folder, name)) as write:
                for record in records:
                    write(record)
            if expected and (columns or name == "a.jsonl"):
                assert [row for _, row in Table(Path(folder, name))] == expected


def spaced(rows):
    """What a TSV file can hold: without quotes, tabs and line ends become spaces."""
    replaced = str.maketrans("\t\r\n", "   ")
    return [{key.translate(replaced): cell.translate(replaced) for key, cell in row.items()} for row in rows]


def test_zstandard_tables_are_read_like_plain_ones(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    path = write_file(tmp_path, "a.jsonl.zst", zstandard.compress(b'{"text": "one", "label": "x"}\n'))
    assert list(Table(path, NEEDED)) == [(1, {"text": "one", "label": "x"})]


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=6))
def test_rows_written_by_the_csv_module_are_read_back_with_their_line_numbers(rows):
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL)
    writer.writerow(["text", "label"])
    expected = []
    for text, label in rows:
        expected.append((buffer.getvalue().count("\n") + 1, {"text": text, "label": label}))
        writer.writerow([text, label])
    with tempfile.TemporaryDirectory() as folder:
        path = write_file(Path(folder), "a.csv", buffer.getvalue())
        assert list(Table(path)) == expected


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=6))
def test_rows_written_by_the_json_module_are_read_back(rows):
    content = "".join(json.dumps({"text": a, "label": b}, ensure_ascii=False) + "\n" for a, b in rows)
    with tempfile.TemporaryDirectory() as folder:
        path = write_file(Path(folder), "a.jsonl", content)
        assert [(values["text"], values["label"]) for _, values in Table(path)] == rows


def records(middle):
    """Three lines of JSON, the second one bad."""
    return b'{"text": "one", "label": 1}\n' + middle + b'\n{"text": "three", "label": 1}\n'


BAD = {
    "too_many.csv": ("text,label\none,x\ntwo,y,z\nthree,x\n", "line 3", "has 3 fields, but the header has 2"),
    "too_few.tsv": ("text\tlabel\none\tx\ntwo\nthree\tx\n", "line 3", "has 1 field, but the header has 2"),
    "after_quote.csv": ('text,label\none,x\n"two"2,y\nthree,x\n', "line 3", "is not CSV"),
    "return.csv": ("text,label\none,x\ntw\ro,y\nthree,x\n", "line 3", "is not CSV"),
    "byte.csv": (b"text,label\none,x\ntw\xff,y\nthree,x\n", "line 3", "is not UTF-8 (byte 0xff)"),
    "byte.tsv": (b"text\tlabel\none\tx\ntw\xe9\ty\nthree\tx\n", "line 3", "is not UTF-8 (byte 0xe9)"),
    "byte.jsonl": (records(b'{"text": "\xff", "label": 1}'), "line 2", "is not UTF-8 (byte 0xff)"),
    "escape.jsonl": (records(b'{"text": "\\ud83d", "label": 1}'), "line 2", "contains an unpaired surrogate"),
    "broken.jsonl": (records(b'{"text": '), "line 2", "is not JSON"),
    "list.jsonl": (records(b"[1]"), "line 2", "not a JSON object"),
    "null.jsonl": (records(b'{"text": null, "label": 1}'), "line 2", "has no value in column 'text'"),
    "number.jsonl": (records(b'{"text": "two", "label": [1e400]}'), "line 2", "has a number that is too large"),
    "absent.jsonl": (
        *(records(b'{"txet": "two", "label": 1}'), "line 2"),
        "has no column 'text', only txet, label; did you mean 'txet'? Set data.text=txet",
    ),
}


def test_a_bad_row_is_an_error_that_names_file_and_line_or_is_skipped_and_reported_once(tmp_path, capsys):
    for name, (content, line, reason) in BAD.items():
        path = write_file(tmp_path, name, content)
        sentence = error_message(path)
        assert sentence.startswith(f"{line} of '{path}' ")
        assert reason in sentence
        encoding = "set data.encoding, usually latin-1, or" if name.startswith("byte") else "fix it, or"
        assert sentence.endswith(f"; {encoding} skip such rows with data.bad_rows=skip")
        with Table(path, NEEDED, TableOptions(bad_rows="skip")) as table:
            assert [values["text"] for _, values in table] == ["one", "three"], name
        assert table.skipped == 1
        printed = capsys.readouterr()
        assert printed.err.count("\n") == 1
        assert f"skipped 1 bad row of '{path}'; the first: {line}" in printed.err
        assert reason in printed.err
        assert printed.out == ""


def test_parquet_text_that_is_not_utf_8_is_a_bad_row(tmp_path):
    pa = pytest.importorskip("pyarrow")
    raw = pa.array([b"one", b"\xff", b"three"], pa.binary())
    text = pa.StringArray.from_buffers(3, *raw.buffers()[1:])
    path = tmp_path / "a.parquet"
    write_parquet(path, {"text": text, "label": ["x", "y", "z"]})
    assert error_message(path).startswith(f"row 2 of '{path}' has text that is not UTF-8")
    table = Table(path, NEEDED, TableOptions(bad_rows="skip"))
    assert [number for number, _ in table] == [1, 3]


def test_a_missing_column_is_reported_with_the_existing_columns(tmp_path):
    path = write_file(tmp_path, "a.csv", "id,txt,topic\n1,one,x\n")
    assert (
        error_message(path)
        == f"'{path}' has no column 'text', only id, txt, topic; did you mean 'txt'? Set data.text=txt"
    )
    assert error_message(path, {"data.label": "class"}).endswith("set data.label=COLUMN")


def test_a_missing_column_of_a_parquet_file_is_reported(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, {"body": ["one"], "label": ["x"]})
    assert error_message(path) == f"'{path}' has no column 'text', only body, label; set data.text=COLUMN"


def test_a_missing_column_is_an_error_even_if_bad_rows_are_skipped(tmp_path):
    assert "has no column 'text'" in error_message(write_file(tmp_path, "a.csv", "a,b\n1,2\n"), bad_rows="skip")
    path = write_file(tmp_path, "a.jsonl", '{"a": 1}\n{"a": 2}\n')
    assert error_message(path, bad_rows="skip").startswith(f"no row of '{path}' can be used (2 are bad): line 1 of")


def test_an_empty_file_is_an_input_error(tmp_path):
    for content in ("", "\n\n"):
        for name in ("a.csv", "a.tsv", "a.jsonl"):
            assert error_message(write_file(tmp_path, name, content)).startswith(f"'{tmp_path / name}' is empty;")


def test_a_header_without_rows_counts_as_an_empty_file(tmp_path):
    assert "is empty" in error_message(write_file(tmp_path, "a.csv", "text,label\n"))


def test_an_empty_parquet_file_is_an_input_error(tmp_path):
    nothing = pytest.importorskip("pyarrow").array([], "string")
    path = write_parquet(tmp_path / "a.parquet", {"text": nothing, "label": nothing})
    assert "is empty" in error_message(path)
    assert "is damaged or not a Parquet file" in error_message(write_file(tmp_path, "b.parquet", "no"))


def test_a_quote_that_is_never_closed_is_an_error_even_if_bad_rows_are_skipped(tmp_path):
    path = write_file(tmp_path, "a.csv", 'text,label\none,x\n"two,y\nthree,x\n')
    assert error_message(path, bad_rows="skip") == f"line 3 of '{path}' has a quote that is never closed; close it"


def test_a_field_may_exceed_the_default_limit_of_the_csv_module(tmp_path):
    path = write_file(tmp_path, "a.csv", f"text,label\n{'a' * 200_000},x\n")
    assert [len(values["text"]) for _, values in Table(path)] == [200_000]


def test_a_duplicate_column_is_an_input_error(tmp_path):
    assert "has the column 'text' twice" in error_message(write_file(tmp_path, "a.csv", "text,text\n1,2\n"))


def test_a_header_that_is_not_utf_8_is_an_input_error(tmp_path):
    path = write_file(tmp_path, "a.csv", "text,label\none,x\n".encode("utf-16"))
    assert error_message(path, bad_rows="skip").startswith(f"the header of '{path}' is not UTF-8 (byte 0xff)")


def test_an_unknown_suffix_or_a_missing_file_is_an_input_error(tmp_path):
    assert "must end in one of .csv, .tsv" in error_message(tmp_path / "a.xls")
    assert error_message(tmp_path / "a.csv").startswith(f"'{tmp_path / 'a.csv'}' not found")


def test_rows_are_streamed_before_the_whole_file_is_read(tmp_path):
    path = write_file(tmp_path, "a.csv", "text,label\none,x\ntwo,y,z\n")
    assert next(iter(Table(path, NEEDED))) == (2, {"text": "one", "label": "x"})


WIDE = {
    "a.csv": lambda names: ",".join(names) + "\n" + ",".join(["x"] * len(names)) + "\n",
    "a.tsv": lambda names: "\t".join(names) + "\n" + "\t".join(["x"] * len(names)) + "\n",
    "a.jsonl": lambda names: json.dumps(dict.fromkeys(names, "x")) + "\n",
}


@pytest.mark.timeout(20)
def test_as_many_columns_as_in_a_spreadsheet_are_read_and_more_are_an_error(tmp_path):
    for name in WIDE:
        names = ["text", "label", *(f"c{number}" for number in range(100_000))]
        path = write_file(tmp_path, name, WIDE[name](names[:16_384]))
        assert len(list(Table(path, NEEDED))) == 1
        path = write_file(tmp_path, name, WIDE[name](names))
        assert "16,384" in error_message(path)
        assert "has 100,002" in error_message(path)


def test_a_parquet_file_with_too_many_columns_is_an_error(tmp_path):
    write_parquet(tmp_path / "a.parquet", {"text": ["a"], "label": ["b"]} | {f"c{n}": [1] for n in range(16_383)})
    assert "must have at most 16,384 columns, has 16,385; keep the" in error_message(tmp_path / "a.parquet")


def test_a_long_cell_is_not_called_an_open_quote(tmp_path):
    path = write_file(tmp_path, "a.csv", f'text,label\n"{"x" * (1 << 24)}x",y\n')
    assert "has a cell of more than 16 Mi characters or a quote that is never closed" in error_message(path)


def test_a_record_that_is_nested_too_deeply_is_a_bad_row(tmp_path):
    deep = '{"text": "a", "label": ' + "[" * 600 + "]" * 600 + "}\n"
    path = write_file(tmp_path, "a.jsonl", deep + '{"text": "b", "label": "c"}\n')
    assert "line 1 of" in error_message(path)
    assert "is nested more than 100 levels deep" in error_message(path)
    assert [values["text"] for _, values in Table(path, NEEDED, TableOptions(bad_rows="skip"))] == ["b"]


def test_a_pipe_is_not_a_table(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    assert "must be a regular file; save the data first" in error_message(tmp_path / "a.csv")
