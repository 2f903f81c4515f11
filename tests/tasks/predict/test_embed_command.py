"""`lightbert embed`: texts of files and pipes to files of vectors."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_classifiers import write_tiny_model

import lightbert
from lightbert import cli
from lightbert.models import add_head
from lightbert.nn.pooling_settings import Pooling
from lightbert.tasks.predict import torch_runtime, vectors
from parquet import write_parquet

TEXTS = ["good film", "a bad film was the film .", "the"]
FILES = {
    "my.txt": "\n".join(TEXTS) + "\n",
    "my.jsonl": "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(TEXTS)),
    "my.csv": "id,text\n" + "".join(f"{n},{text}\n" for n, text in enumerate(TEXTS)),
    "my.tsv": "id\ttext\n" + "".join(f"{n}\t{text}\n" for n, text in enumerate(TEXTS)),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model"), None)


@pytest.fixture
def embed(capsys, monkeypatch, tmp_path):
    """Run the command in an empty folder with standard input; return the exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, piped: bytes = b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
        code = cli.main(["embed", *map(str, arguments)])
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


def test_every_file_format_gives_the_vectors_of_encode(embed, model, tmp_path):
    for name in FILES:
        (tmp_path / name).write_text(FILES[name])
        code, said, _ = embed(model, name, "--out", "x.npy")
        assert (code, said) == (0, "3 vectors of 16 numbers: x.npy\n")
        found = np.load("x.npy")
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, lightbert.load(model).encode(TEXTS))


def test_pooling_and_normalization_are_those_of_encode(embed, model):
    for pool in ["mean", "cls", "max"]:
        piped = FILES["my.txt"].encode()
        assert embed(model, "-", "--out", "x.npy", "--pool", pool, "--normalize", piped=piped)[0] == 0
        np.testing.assert_array_equal(np.load("x.npy"), lightbert.load(model).encode(TEXTS, pool=pool, normalize=True))


def test_the_projection_prompts_and_sizes_of_a_sentence_encoder(embed, tmp_path):
    model = lightbert.load(write_tiny_model(tmp_path / "m", None))
    add_head(model, "vector", {"size": 6}, seed=0)
    model.pooling = Pooling(normalize=True, projection=True, sizes=(3,), prompts={"query": "bad "})
    lightbert.save(model, tmp_path / "projected")
    piped = FILES["my.txt"].encode()
    options = ("--prompt-name", "query", "--size", "3")
    assert embed(tmp_path / "projected", "-", "--out", "x.npy", *options, piped=piped)[0] == 0
    assert np.load("x.npy").shape == (3, 3)
    np.testing.assert_array_equal(np.load("x.npy"), model.encode(TEXTS, prompt="bad ", size=3))
    code, _, error = embed(tmp_path / "projected", "-", "--out", "y.npy", "--size", "4", piped=piped)
    assert code != 0
    assert error.count("\n") == 1
    assert "size must be one of 6, 3, the sizes that the model was trained for, got 4" in error


def test_small_types_keep_the_directions_and_the_signs(embed, model):
    parquet = pytest.importorskip("pyarrow.parquet")
    vectors = lightbert.load(model).encode(TEXTS)
    for name, dtype, width in (("int8", np.int8, 16), ("binary", np.uint8, 2)):
        for file in ("x.npy", "x.parquet"):
            assert embed(model, "-", "--out", file, "--dtype", name, piped=FILES["my.txt"].encode())[0] == 0
        found = np.load("x.npy")
        assert (found.dtype, found.shape) == (dtype, (3, width))
        rows = parquet.read_table("x.parquet")["vector"].to_pylist()
        np.testing.assert_array_equal(found, rows)
        if name == "binary":
            np.testing.assert_array_equal(np.unpackbits(found, axis=1), vectors > 0)
        else:
            np.testing.assert_allclose(found / 127 * np.abs(vectors).max(1)[:, None], vectors, atol=0.02)


def test_the_vectors_do_not_depend_on_the_chunk_size(embed, model, monkeypatch):
    monkeypatch.setattr(torch_runtime, "CPU_CHUNK", 2)
    embed(model, "-", "--out", "x.npy", piped=FILES["my.txt"].encode() * 3)
    expected = lightbert.load(model).encode(TEXTS * 3)
    np.testing.assert_allclose(np.load("x.npy"), expected, rtol=1e-5, atol=1e-6)


def test_only_one_chunk_of_a_stream_is_in_memory(model, monkeypatch):
    monkeypatch.setattr(torch_runtime, "CPU_CHUNK", 2)
    read = []
    found = vectors.Embedder(*_parts(model)).stream(read.append(text) or text for text in TEXTS * 5)
    assert next(found).shape == (2, 16)
    assert len(read) == 2


def _parts(model):
    from lightbert.nn.inference import TextVector
    from lightbert.tasks.predict.predictor import encoder_of

    loaded = lightbert.load(model)
    return torch_runtime.TorchRuntime(TextVector(loaded)), encoder_of(loaded)


def test_a_parquet_file_has_the_vectors_and_the_kept_columns(embed, model, tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(torch_runtime, "CPU_CHUNK", 2)
    (tmp_path / "my.jsonl").write_text(FILES["my.jsonl"])
    assert embed(model, "my.jsonl", "--out", "x.parquet", "--keep", "id,text")[0] == 0
    table = parquet.read_table("x.parquet")
    assert table.column_names == ["id", "text", "vector"]
    assert table["id"].to_pylist() == [0, 1, 2]
    assert table["text"].to_pylist() == TEXTS
    kind = table.schema.field("vector").type
    assert (kind.list_size, str(kind.value_type)) == (16, "float")
    found = np.array(table["vector"].to_pylist(), dtype=np.float32)
    np.testing.assert_allclose(found, lightbert.load(model).encode(TEXTS), rtol=1e-5, atol=1e-6)


def test_a_parquet_file_is_also_read(embed, model, tmp_path):
    write_parquet(tmp_path / "my.parquet", {"body": TEXTS})
    assert embed(model, "my.parquet", "--text", "body", "--out", "x.npy")[0] == 0
    assert np.load("x.npy").shape == (3, 16)


def test_a_column_that_changes_its_type_is_an_error_that_names_it(embed, model, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(torch_runtime, "CPU_CHUNK", 1)
    piped = b'{"text": "good", "id": 1}\n{"text": "bad", "id": "b"}\n'
    code, _, said = embed(model, "-", "--out", "x.parquet", "--keep", "id", piped=piped)
    assert code == 1
    assert "the column 'id' must contain int64, like the first rows" in said
    assert "leave it out of --keep" in said


@pytest.mark.parametrize(
    ("first", "later"),
    [(1, 1.5), ({"page": 1}, {"page": 2, "source": "book"}), ([1], [2.5]), (1, 2**70), (0.5, 2**53 + 1)],
)
def test_a_value_that_its_column_cannot_hold_is_an_error_that_names_it(embed, model, monkeypatch, first, later):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(torch_runtime, "CPU_CHUNK", 1)
    rows = [{"text": "good", "kept": first}, {"text": "bad", "kept": later}]
    code, _, said = embed(model, "-", "--out", "x.parquet", "--keep", "kept", piped=json_lines(rows))
    assert (code, "the column 'kept' must contain" in said) == (1, True)
    assert not Path("x.parquet").exists()


def test_values_of_the_same_column_may_differ_where_nothing_is_lost(embed, model, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(torch_runtime, "CPU_CHUNK", 2)
    kept = [{"page": 1, "score": 0.5}, {"page": 2}, {"score": 1}, None, {"page": None}]
    rows = [{"text": "good", "kept": value} for value in kept]
    assert embed(model, "-", "--out", "x.parquet", "--keep", "kept", piped=json_lines(rows))[0] == 0
    found = parquet.read_table("x.parquet")["kept"].to_pylist()
    assert found == [value and {"page": None, "score": None} | value for value in kept]


def test_a_column_that_is_empty_at_first_contains_texts(embed, model, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(torch_runtime, "CPU_CHUNK", 1)
    rows = [{"text": "good", "kept": value} for value in (None, "é", 7, {"page": ["é"]})]
    assert embed(model, "-", "--out", "x.parquet", "--keep", "kept", piped=json_lines(rows))[0] == 0
    assert parquet.read_table("x.parquet")["kept"].to_pylist() == [None, "é", "7", '{"page": ["é"]}']


def test_kept_columns_of_a_parquet_file_keep_their_types(embed, model, monkeypatch):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(torch_runtime, "CPU_CHUNK", 1)
    given = arrow.table(
        {
            "text": ["good", "bad", "film"],
            "late": arrow.array([None, None, 7], arrow.int16()),
            "half": arrow.array([0.1, None, float("nan")], arrow.float32()),
            "day": arrow.array([None, 1, 2], arrow.date32()),
            "parts": arrow.array([[], None, [{"a": 1}]], arrow.list_(arrow.struct([("a", arrow.uint8())]))),
        }
    )
    parquet.write_table(given, "my.parquet")
    kept = ["late", "half", "day", "parts"]
    assert embed(model, "my.parquet", "--out", "x.parquet", "--keep", ",".join(kept))[0] == 0
    found = parquet.read_table("x.parquet").select(kept)
    assert found.schema.types == given.select(kept).schema.types
    assert str(found.to_pylist()) == str(given.select(kept).to_pylist())


def json_lines(rows: list[dict]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_no_text_gives_an_empty_file(embed, model):
    assert embed(model, "-", "--out", "x.npy")[0] == 0
    assert np.load("x.npy").shape == (0, 16)
    parquet = pytest.importorskip("pyarrow.parquet")
    assert embed(model, "-", "--out", "x.parquet", "--keep", "id")[0] == 0
    assert parquet.read_table("x.parquet").num_rows == 0


def test_a_second_text_makes_a_pair(embed, model):
    piped = b'{"text": "good", "text_b": "film"}\n{"text": "good", "text_b": null}\n'
    embed(model, "-", "--out", "x.npy", piped=piped)
    expected = lightbert.load(model).encode([("good", "film"), "good"])
    np.testing.assert_allclose(np.load("x.npy"), expected, rtol=1e-5, atol=1e-6)


def test_the_report_counts_vectors_truncated_texts_and_skipped_rows(embed, model):
    piped = b'{"text": "good"}\n{"text": 5}\n{"text": "' + b"bad " * 30 + b'"}\n'
    code, found, said = embed(model, "-", "--out", "a/x.npy", "--bad-rows", "skip", "--json", piped=piped)
    assert code == 0
    assert json.loads(found) == {"vectors": 2, "width": 16, "cut": 1, "skipped": 1, "out": "a/x.npy"}
    assert "line 2 of standard input must have a text in 'text', got 5" in said
    assert "1 text was truncated to 16 tokens" in said


def test_after_an_error_the_old_file_is_unchanged(embed, model, tmp_path):
    embed(model, "-", "--out", "x.npy", piped=b"good\n")
    before = (tmp_path / "x.npy").read_bytes()
    code, _, said = embed(model, "-", "--out", "x.npy", piped=b'good\n{"body": "bad"}\n')
    assert code == 1
    assert "line 2 of standard input has no 'text', only 'body'; set its name with --text" in said
    assert "skip such rows with --bad-rows skip" in said
    assert (tmp_path / "x.npy").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("-", "--out", "x.csv"), "--out must end in .npy or .parquet, got 'x.csv'"),
        (("-", "--out", "x.npy", "--keep", "id"), "--keep requires a table"),
        (("-", "--out", "x.npy", "--pool", "avg"), "unknown pool 'avg'; choose from auto, mean, cls, max"),
        (("-", "--out", "x.npy", "--length", "17"), "length must be <= 16, the positions of the model, got 17"),
        (("-", "--out", "x.npy", "--batch", "-1"), "batch must be >= 0, got -1"),
        (("missing.jsonl", "--out", "x.npy"), "'missing.jsonl' not found"),
        (("my.doc", "--out", "x.npy"), "'my.doc' must end in one of"),
        (("-", "--out", "x.parquet", "--keep", "vector"), "rename that column"),
        (("-", "--out", "x.parquet", "--keep", "id,text,id"), "distinct names, got 'id' twice; name it once"),
    ],
)
def test_invalid_options_are_a_one_line_error(embed, model, arguments, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.doc").write_text("good\n")
    code, found, said = embed(model, *arguments, piped=b"good\n")
    if "parquet" in arguments[2]:
        pytest.importorskip("pyarrow")
    assert (code, found) == (1, "")
    assert problem in said.splitlines()[-1]


def test_a_kept_field_must_exist(embed, model):
    pytest.importorskip("pyarrow")
    said = embed(model, "-", "--out", "x.parquet", "--keep", "id", piped=b"good\n")[2]
    assert "line 1 of standard input has no 'id', only 'text'; leave it out of --keep" in said


@pytest.mark.parametrize("name", ["my.csv", "my.tsv"])
def test_a_kept_column_must_be_in_the_header(embed, model, tmp_path, name):
    pytest.importorskip("pyarrow")
    (tmp_path / name).write_text(FILES[name])
    code, _, said = embed(model, name, "--out", "x.parquet", "--keep", "id,score", "--bad-rows", "skip")
    assert (code, "has no column 'score', only 'id', 'text'; leave it out of --keep" in said) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == [name]
