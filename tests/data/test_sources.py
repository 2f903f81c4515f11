"""Finding sources and reading documents from them."""

import bz2
import gzip
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightbert.data import sources, text_files
from lightbert.data.sources import ReadOptions, find
from lightbert.errors import InputError
from parquet import write_parquet


def zstandard(data):
    """Compress data, or skip the test if zstandard is not installed."""
    compressed: bytes = pytest.importorskip("zstandard").compress(data)
    return compressed


TEXT = "First line.\nSecond line.\n\nAnother document.\n"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    # Two frames, as in a file that was appended to.
    ".zst": lambda data: zstandard(data[:7]) + zstandard(data[7:]),
}


def read(path, **reading):
    return [text for source in find([str(path)]) for text, _ in sources.documents(source, ReadOptions(**reading))]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_give_the_same_text_as_plain_files(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](TEXT.encode()))
    assert read(path) == ["First line.\nSecond line.", "Another document."]


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_a_truncated_or_damaged_compressed_file_is_an_input_error(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    whole = COMPRESS[suffix](TEXT.encode() * 500)
    for broken in (whole[: len(whole) // 2], whole[:-1], b"not compressed at all"):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=rf"a\.txt{suffix}' is truncated or not a valid {suffix} file"):
            read(path)


def test_the_unit_of_a_document_can_be_chosen(tmp_path):
    for unit, documents in (
        ("blank", ["First line.\nSecond line.", "Another document."]),
        ("line", ["First line.", "Second line.", "Another document."]),
        ("file", ["First line.\nSecond line.\nAnother document."]),
    ):
        (tmp_path / "a.txt").write_text(TEXT)
        assert read(tmp_path / "a.txt", documents=unit) == documents


def test_a_byte_order_mark_and_carriage_returns_are_stripped(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfOne\r\n \r\nTwo")
    assert read(tmp_path / "a.txt") == ["One", "Two"]


def test_a_document_above_the_size_limit_is_split(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_MAX_DOCUMENT_CHARACTERS", 10)
    (tmp_path / "a.txt").write_text("123456\n123456\n123\n")
    assert read(tmp_path / "a.txt", documents="file") == ["123456\n123456", "123"]


def test_an_encoding_error_names_the_line(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfgood\nb\xffd\n")
    sentence = r"^line 2 of '.*a\.txt' is not UTF-8 \(byte 0xff\); set data.encoding, usually latin-1, or --undecodable"
    with pytest.raises(InputError, match=sentence):
        read(tmp_path / "a.txt")
    assert read(tmp_path / "a.txt", encoding="latin-1") == ["ï»¿good\nbÿd"]
    assert read(tmp_path / "a.txt", undecodable="replace") == ["good\nb\ufffdd"]


def test_a_line_above_the_size_limit_is_an_input_error(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 1 << 20)
    (tmp_path / "a.txt").write_bytes(b"x" * (1 << 20))
    with pytest.raises(InputError, match="a line of more than 1 MiB"):
        read(tmp_path / "a.txt")


def test_a_field_of_json_lines_is_the_document(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a\\nb", "body": "c"}\n\n{"text": "d", "body": "e"}\n'))
    assert read(path) == ["a\nb", "d"]
    assert read(path, text="body") == ["c", "e"]


def test_a_bad_json_line_is_reported_with_its_number(tmp_path):
    for line, problem in (
        ('{"body": "x"}', "line 2 of '.*' has no column 'text', only body; set data.text=COLUMN; fix it$"),
        ('{"text": 3}', "line 2 of '.*' has no text in 'text'; choose another column with --text"),
        ('["text"]', "line 2 of '.*' is not a JSON object"),
        ('{"text": ', "line 2 of '.*' is not JSON"),
    ):
        (tmp_path / "a.jsonl").write_text(f'{{"text": "fine"}}\n{line}\n')
        with pytest.raises(InputError, match=problem):
            read(tmp_path / "a.jsonl")


def test_a_column_of_a_table_is_the_document(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbftext,body\r\n"a, ""b""\r\nc",d\r\n\r\ne,f\r\n')
    assert read(tmp_path / "a.csv") == ['a, "b"\nc', "e"]
    assert read(tmp_path / "a.csv", text="body") == ["d", "f"]
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"text;n\na, b;1\n"))
    assert read(tmp_path / "b.csv.gz", separator=";") == ["a, b"]
    (tmp_path / "c.tsv").write_text('n\ttext\n1\t"a\n')
    assert read(tmp_path / "c.tsv") == ['"a']
    [source] = find([str(tmp_path / "a.csv")])
    assert [position for _, position in sources.documents(source, ReadOptions())][-1] == source.size


def test_a_bad_row_of_a_table_is_reported(tmp_path):
    for content, problem in (
        (b"body,n\na,1\n", "has no column 'text', only body, n; set data.text=COLUMN"),
        (b"text,n\na\n", "line 2 of '.*' has 1 field, but the header has 2"),
        (b'text,n\n"a"b,1\n', "line 2 of '.*' is not CSV"),
        (b"text,text\n", "has the column 'text' twice"),
        (
            b"text\n\xff\n",
            r"the header of|line 2 of '.*' is not UTF-8 \(byte 0xff\); set data.encoding, usually latin-1$",
        ),
    ):
        (tmp_path / "a.csv").write_bytes(content)
        with pytest.raises(InputError, match=problem):
            read(tmp_path / "a.csv")


def test_a_folder_includes_tables_only_if_they_are_named(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "about.csv").write_text("file,licence\na.txt,mine\n")
    assert [Path(source.name).name for source in find([str(tmp_path)])] == ["a.txt"]
    assert [Path(source.name).name for source in find([f"{tmp_path}/*.csv"])] == ["about.csv"]


def test_a_column_of_a_parquet_file_is_the_document(tmp_path):
    write_parquet(tmp_path / "a.parquet", {"text": ["a", "b"], "body": ["c", None]})
    assert read(tmp_path / "a.parquet") == ["a", "b"]
    with pytest.raises(InputError, match=r"row 2 of '.*' has no value in column 'body'"):
        read(tmp_path / "a.parquet", text="body")
    with pytest.raises(InputError, match=r"no column 'title', only .*; set data.text=COLUMN"):
        read(tmp_path / "a.parquet", text="title")


def test_a_damaged_parquet_file_is_an_input_error(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(InputError, match=r"a\.parquet' is damaged or not a Parquet file"):
        read(tmp_path / "a.parquet")


def test_a_missing_optional_dependency_names_the_extra_to_install(tmp_path, monkeypatch):
    for library, file in (("pyarrow", "a.parquet"), ("zstandard", "a.txt.zst")):
        (tmp_path / file).write_bytes(b"x")
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(InputError, match=rf"requires {library}; install it with: pip install 'lightbert\[data\]'"):
            read(tmp_path / file)


def test_a_hugging_face_dataset_is_streamed(tmp_path):
    pytest.importorskip("datasets")
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text(json.dumps({"text": f"of {split}", "id": 1}) + "\n")
    assert read(f"hf:{tmp_path}") == ["of train"]
    assert read(f"hf:{tmp_path}::test") == ["of test"]
    with pytest.raises(InputError, match="no text column 'body'; choose one of text, id with --text"):
        read(f"hf:{tmp_path}", text="body")
    with pytest.raises(InputError, match=r"cannot open 'hf:.*nowhere'"):
        read(f"hf:{tmp_path}/nowhere")
    with pytest.raises(InputError, match="write hf:NAME"):
        read("hf:a:b:c:d")


def test_folders_and_globs_are_expanded_in_order(tmp_path):
    for name in ("b.txt", "a/z.txt.gz", "a/b.jsonl", "ignored.md", ".hidden/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    names = [str(Path(source.name).relative_to(tmp_path)) for source in find([str(tmp_path), str(tmp_path / "*.t?t")])]
    assert names == ["a/b.jsonl", "a/z.txt.gz", "b.txt", "b.txt"]


def test_a_source_that_cannot_be_found_is_an_input_error(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.md").write_text("x")
    for specification, problem in (
        ("missing.txt", r"'.*missing\.txt' not found; give a file, a folder"),
        ("*.jsonl", "no file matches"),
        ("empty", "the folder '.*empty' must contain .txt, .jsonl, .ndjson, .parquet files, but has none"),
        ("notes.md", r"'.*notes\.md' must have one of the suffixes .txt, .csv, .tsv, .jsonl"),
    ):
        with pytest.raises(InputError, match=problem):
            find([str(tmp_path / specification)])
    sentence = r"^a source must not be empty; give a file, a folder \(\. is the current one\) or a glob$"
    with pytest.raises(InputError, match=sentence):
        find([""])
    with pytest.raises(InputError, match="sources must not be empty"):
        find([])
