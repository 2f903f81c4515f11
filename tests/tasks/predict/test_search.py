"""`lightbert search`: indexing, resuming, searching, duplicates and clusters."""

import csv
import json

import numpy as np
import pytest
from tiny_classifiers import write_tiny_model, write_vector_model

import lightbert
from lightbert import cli
from lightbert.tasks.predict import search
from lightbert.tasks.predict.search import Reading, SearchIndex

TEXTS = ["good film", "a bad film was the film .", "the", "bad bad bad", "good good", "a film", "good film"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_vector_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "my.csv"
    path.write_text("key,body\n" + "".join(f"k{number},{text}\n" for number, text in enumerate(TEXTS)))
    return path


@pytest.fixture
def run(capsys, model, tmp_path, monkeypatch):
    """Run the command on the index "my-index"; return the exit code, the report and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = cli.main(["search", "my-index", *map(str, arguments), "--json"])
        output = capsys.readouterr()
        return code, json.loads(output.out or "{}"), output.err

    return call


def test_a_search_ranks_all_texts_by_the_cosines_of_their_vectors_with_prompts(run, model, table):
    columns = ("--text", "body", "--id", "key", "--model", model)
    assert run("--add", table, *columns)[1]["added"] == len(TEXTS)
    code, report, _ = run("the film", "bad", "--top", "3")
    assert (code, report["texts"], report["added"]) == (0, len(TEXTS), 0)
    loaded = lightbert.load(model)
    documents = loaded.encode(TEXTS, prompt="good ", normalize=True)
    for query in ("the film", "bad"):
        cosines = documents @ loaded.encode(query, prompt="bad ", normalize=True)
        results = [row for row in report["results"] if row["query"] == query]
        assert [row["rank"] for row in results] == [1, 2, 3]
        assert [row["score"] for row in results] == pytest.approx(np.sort(cosines)[::-1][:3].tolist(), abs=2e-3)
        for row in results:
            place = int(row["id"].removeprefix("k"))
            assert (row["text"], row["file"]) == (TEXTS[place], str(table))
            assert row["score"] == pytest.approx(cosines[place], abs=2e-3)


def test_a_file_is_indexed_again_only_if_it_has_changed(run, model, table, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("the film was good\n")
    add = ("--add", table, "--add", other, "--text", "body", "--model", model)
    assert run(*add)[1]["added"] == len(TEXTS) + 1
    assert run(*add)[1]["added"] == 0
    other.write_text("bad\nthe\n")
    report = run(*add)[1]
    assert (report["added"], report["texts"]) == (2, len(TEXTS) + 2)
    assert len(list((tmp_path / "my-index").glob("*.npy"))) == 2
    assert {row["text"] for row in run("bad", "--top", "99")[1]["results"]} == {*TEXTS, "bad", "the"}


def test_interrupted_indexing_resumes_after_the_last_part(model, table, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "_PART", 2)
    loaded, reading = lightbert.load(model), Reading("body", "key")
    whole = SearchIndex(tmp_path / "whole", loaded)
    assert whole.add([str(table)], reading) == len(TEXTS)
    encoded = []

    def interrupt(count):
        encoded.append(count)
        if len(encoded) == 3:
            raise KeyboardInterrupt

    index = SearchIndex(tmp_path / "index", loaded)
    with pytest.raises(KeyboardInterrupt):
        index.add([str(table)], reading, interrupt)
    again = SearchIndex(tmp_path / "index", loaded)
    assert len(again) == 4
    assert again.add([str(table)], reading, encoded.append) == len(TEXTS) - 4
    assert sum(encoded[3:]) == len(TEXTS) - 4
    np.testing.assert_array_equal(again.vectors, whole.vectors)
    assert again.rows(range(len(TEXTS))) == whole.rows(range(len(TEXTS)))


def test_the_paragraphs_of_documents_are_texts(run, model, tmp_path):
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "docs" / "a.md").write_text("# The\n\ngood\nfilm\n\n\n the bad \n")
    (tmp_path / "docs" / "deep" / "b.txt").write_text("a film\n")
    assert run("--add", "docs", "--model", model)[1]["added"] == 3
    found = {row["id"]: row["text"] for row in run("good")[1]["results"]}
    assert found == {"a.md:1": "# The good film", "a.md:2": "the bad", "b.txt:1": "a film"}


def test_queries_of_a_file_are_answered_in_a_table(run, model, table, tmp_path):
    run("--add", table, "--text", "body", "--model", model)
    (tmp_path / "queries.csv").write_text("body\ngood\nbad\n")
    code, report, _ = run("--file", "queries.csv", "--text", "body", "--top", "2", "--out", "found.csv")
    assert (code, report["out"]) == (0, "found.csv")
    with (tmp_path / "found.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["query"], row["rank"]) for row in rows] == [("good", "1"), ("good", "2"), ("bad", "1"), ("bad", "2")]
    assert rows[0]["id"].startswith("my.csv:")


def test_duplicates_and_clusters_are_listed(run, model, table, capsys):
    run("--add", table, "--text", "body", "--id", "key", "--model", model)
    groups = run("--duplicates", "--threshold", "0.9999")[1]["results"]
    assert [(row["group"], row["id"], row["score"]) for row in groups] == [
        (1, "k0", pytest.approx(1, abs=1e-3)),
        (1, "k6", pytest.approx(1, abs=1e-3)),
    ]
    clusters = run("--clusters", "3")[1]["results"]
    assert sorted(row["text"] for row in clusters) == sorted(TEXTS)
    assert {row["cluster"] for row in clusters} == {1, 2, 3}
    assert cli.main(["search", "my-index", "--clusters", "2"]) == 0
    assert "texts: " in capsys.readouterr().out


def test_an_index_of_another_model_is_refused(run, model, table, tmp_path):
    run("--add", table, "--text", "body", "--model", model)
    other = write_tiny_model(tmp_path / "other", None, "vector", size=16)
    code, _, error = run("good", "--model", other)
    assert (code, error.count("\n")) == (1, 1)
    assert f"the index 'my-index' was made by another model, {model}: the vectors differ" in error


def test_bad_input_is_one_sentence(run, model, table, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    index = ("--add", table, "--text", "body", "--model", model)
    for arguments, sentence in [
        (("good",), "the index 'my-index' not found; make it with --add FILE"),
        (("--add", "missing.csv"), "'missing.csv' not found; check the path"),
        (("--add", "empty"), "'empty' must contain files that end in .md, .txt, .rst"),
        (("--add", table, "--model", model), "has no column 'text', only 'key', 'body'; set its name with --text"),
        (("good", "--duplicates"), "give one of: queries, --file, --duplicates, --clusters"),
        (("--top", "0"), "--top must be >= 1"),
        (("--threshold", "2"), "--threshold must be in (0, 1], got 2.0"),
        (("--out", "x.csv"), "--out requires queries, --file, --duplicates or --clusters"),
        (("good", "--out", "x.doc"), "the name of an output file must end in one of"),
        ((*index, "--clusters", "9"), "the number of clusters must be in [1, 7], the texts of the index, got 9"),
    ]:
        code, _, error = run(*arguments)
        assert (code, sentence in error.splitlines()[-1]) == (1, True), error
    (tmp_path / "my-index" / "000001.npy").write_bytes(b"")
    assert "000001.npy' is damaged (EOFError" in run("good")[2]
    (tmp_path / "my-index" / "index.json").write_text("{")
    assert "is damaged (JSONDecodeError" in run("good")[2]
    assert cli.main(["search", "other", *map(str, index)]) == 1
    assert cli.main(["search", str(table), *map(str, index)]) == 1
