"""`lightbert predict`: texts, files and pipes to lines of JSON."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_classifiers import tiny_model, write_tiny_model

from lightbert import cli
from lightbert.data import text_files
from lightbert.models import folder
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.spans import Spans
from lightbert.tasks.kinds.tokens import Tokens
from parquet import write_parquet


@pytest.fixture
def model(tmp_path):
    return write_tiny_model(tmp_path / "model", Classify(("bad", "good")))


@pytest.fixture
def questions(tmp_path):
    return write_tiny_model(tmp_path / "questions", Spans(stride=4, max_query=4))


@pytest.fixture
def predict(capsys, monkeypatch):
    """Run the command with standard input; return the exit code, the records on stdout, and stderr."""

    def run(*arguments, piped: bytes = b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
        code = cli.main(["predict", *map(str, arguments)])
        output = capsys.readouterr()
        return code, [json.loads(line) for line in output.out.splitlines()], output.err

    return run


def test_texts_are_predicted_in_order(predict, model):
    code, found, said = predict(model, "good film", "bad")
    assert (code, said) == (0, "")
    assert [record["text"] for record in found] == ["good film", "bad"]
    assert set(found[0]) == {"text", "label", "probability", "probabilities"}
    assert sum(found[0]["probabilities"].values()) == pytest.approx(1)


def test_a_pair_is_two_texts(predict, model):
    _, found, _ = predict(model, "good", "bad", "--pair", "film", "--pair", "the film")
    assert [(record["text"], record["text_b"]) for record in found] == [("good", "film"), ("bad", "the film")]


def test_a_question_is_answered_with_its_characters(predict, questions):
    context = "the film was good . a film"
    _, (found,), _ = predict(questions, "--question", "a film", "--context", context)
    assert context[found["start"] : found["end"]] == found["answer"]


def test_words_are_tagged(predict, tmp_path):
    tagger = write_tiny_model(tmp_path / "tagger", Tokens(("O", "B-X")))
    _, (found,), _ = predict(tagger, "good film")
    assert [(word["text"], word["start"], word["end"]) for word in found["tags"]] == [("good", 0, 4), ("film", 5, 9)]


def test_the_file_format_follows_from_the_name(predict, model, tmp_path):
    for name, content in [
        ("my.jsonl", '{"id": 1, "text": "good film"}\n{"id": 2, "text": "bad"}\n'),
        ("my.csv", "id,text\n1,good film\n2,bad\n"),
        ("my.tsv", "text\tid\ngood film\t1\nbad\t2\n"),
        ("my.txt", "good film\n\nbad\n"),
    ]:
        (tmp_path / name).write_text(content)
        code, found, _ = predict(model, "--file", tmp_path / name)
        assert code == 0
        assert [record["text"] for record in found] == ["good film", "bad"]
        if not name.endswith(".txt"):
            assert [int(record["id"]) for record in found] == [1, 2]


def test_columns_can_have_any_name_and_all_are_kept(predict, model, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"body": ["good film", "bad"], "stars": [5, 1]})
    parquet.write_table(table, tmp_path / "my.parquet")
    _, found, _ = predict(model, "--file", tmp_path / "my.parquet", "--text", "body")
    assert [(record["body"], record["stars"]) for record in found] == [("good film", 5), ("bad", 1)]


def test_nan_is_null_in_the_output(predict, model):
    _, (found,), _ = predict(model, "-", piped=b'{"text": "good", "stars": NaN, "all": [1, {"x": Infinity}]}\n')
    assert (found["stars"], found["all"]) == (None, [1, {"x": None}])


def test_standard_input_can_mix_records_and_plain_lines(predict, model):
    piped = 'good film\n{"text": "bad", "id": 7}\n\n{not json\n["a"]\ncafé'.encode()
    for arguments in (("-",), ("--file", "-")):
        _, found, _ = predict(model, *arguments, piped=piped)
        assert [record["text"] for record in found] == ["good film", "bad", "{not json", '["a"]', "café"]
        assert found[1]["id"] == 7
    assert predict(model, "-", piped=b"") == (0, [], "")


def test_a_bad_line_is_an_error_with_its_number_or_skipped_and_counted(predict, model):
    piped = b'good\n{"body": "x"}\nfilm \xff\nbad\n'
    code, _, said = predict(model, "-", piped=piped)
    assert code == 1
    assert said == (
        "lightbert: line 2 of standard input has no 'text', only 'body'; set its name with --text; "
        "fix it, or skip such rows with --bad-rows skip\n"
    )
    code, found, said = predict(model, "-", "--bad-rows", "skip", piped=piped)
    assert (code, [record["text"] for record in found]) == (0, ["good", "bad"])
    assert said.startswith("skipped 2 bad rows of standard input; the first: line 2 of standard input")


def test_a_missing_column_is_an_error_before_any_row_is_read(predict, model, questions, tmp_path):
    path = tmp_path / "my.csv"
    path.write_text("body,stars\ngood,5\n")
    code, _, said = predict(model, "--file", path)
    assert (code, "has no column 'text', only 'body', 'stars'; set its name with --text" in said) == (1, True)
    assert "has no column 'question'" in predict(questions, "--file", path)[2]


@pytest.mark.parametrize("name", ["my.csv", "my.jsonl"])
def test_a_named_second_text_is_required(predict, model, tmp_path, name):
    path = tmp_path / name
    path.write_text("text,second\ngood,bad\n" if name == "my.csv" else '{"text": "good", "second": "bad"}\n')
    assert predict(model, "--file", path, "--text-b", "second")[0] == 0
    code, found, said = predict(model, "--file", path, "--text-b", "secnd")
    assert (code, found) == (1, [])
    assert "'secnd', only 'text', 'second'; set its name with --text-b" in said


def test_a_table_of_words_requires_no_text(predict, tmp_path):
    tagger = write_tiny_model(tmp_path / "tagger", Tokens(("B-X", "O")))
    write_parquet(tmp_path / "my.parquet", {"words": [["good", "film"]]})
    _, (found,), _ = predict(tagger, "--file", tmp_path / "my.parquet")
    assert [word["text"] for word in found["tags"]] == ["good", "film"]


def test_a_file_given_as_a_text_is_an_error_with_the_option(predict, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert predict(model, "my.csv")[0] == 0
    (tmp_path / "my.csv").write_text("text\ngood\n")
    code, found, said = predict(model, "my.csv")
    assert (code, found) == (1, [])
    assert "'my.csv' is a file; to predict its texts, write --file my.csv" in said


def test_inputs_for_another_kind_of_model_are_errors(predict, questions, tmp_path):
    tagger = write_tiny_model(tmp_path / "tagger", Tokens(("B-X", "O")))
    assert "a question answering model requires --question and --context" in predict(questions, "good")[2]
    assert "--pair can't be used with a model that tags words; remove it" in predict(tagger, "good", "--pair", "bad")[2]


def test_truncated_texts_are_counted_at_the_end(predict, model):
    _, found, said = predict(model, "good " * 30, "bad")
    assert len(found) == 2
    assert said == "1 text was truncated to 16 tokens\n"


def test_the_output_file_is_written_atomically(predict, model, tmp_path, capsys):
    out = tmp_path / "out" / "predictions.jsonl"
    piped = b"good\nbad\n"
    assert cli.main(["predict", str(model), "good", "bad", "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {"predictions": 2, "cut": 0, "skipped": 0, "out": str(out)}
    before = out.read_text()
    assert [json.loads(line)["text"] for line in before.splitlines()] == ["good", "bad"]
    code, _, _ = predict(model, "-", "--out", out, piped=piped * 20 + b'{"x": 1}\n')
    assert code == 1
    assert out.read_text() == before
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_an_unwritable_output_file_is_an_error_before_any_prediction(predict, model, tmp_path):
    code, _, said = predict(model, "good", "--out", tmp_path)
    assert (code, said) == (
        1,
        f"lightbert: '{tmp_path}' must be a file, but is a folder; choose another name\n",
    )


def test_invalid_options_are_a_one_line_error(predict, model, tmp_path, monkeypatch):
    for arguments, problem in [
        ((), "give one of: texts, --question with --context, --file PATH, or - for standard input"),
        (("film", "--file", "my.csv"), "give one of"),
        (("--question", "film"), "--question and --context must be given together"),
        (("a", "b", "--pair", "c"), "--pair must be given once per text, got 1 for 2 texts"),
        (("-", "film"), "'-' can't be combined with other texts"),
        (("--file", "my.doc"), "'my.doc' must end in one of .csv"),
        (("--file", "missing.jsonl"), "'missing.jsonl' not found"),
        (("film", "--length", "99"), "length must be <= 16, the positions of the model, got 99"),
        (
            ("--question", "a", "--context", "b"),
            "--question requires a question answering model, but the model's task is 'classify'",
        ),
        (("--file", Path(__file__).parent), "is a folder; give the path of a file in it"),
    ]:
        monkeypatch.chdir(tmp_path)
        Path("my.doc").write_text("good\n")
        code, found, said = predict(model, *arguments)
        assert (code, found) == (1, [])
        assert problem in said
        assert said.count("\n") == 1


def test_a_closed_pipe_ends_the_command_silently(model):
    command = [sys.executable, "-m", "lightbert", "predict", str(model), "-"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(b"good film\n")
    process.stdin.flush()
    # The first prediction comes while standard input is still open.
    assert json.loads(process.stdout.readline())["text"] == "good film"
    process.stdout.close()
    _, _ = process.stdin.write(b"bad\n" * 500), process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


BAD_LINES = {
    "half a character": b'{"text": "\\ud83d"}',
    "deep nesting": b'{"text": "a", "more": ' + b"[" * 600 + b"]" * 600 + b"}",
}


def test_a_bad_line_of_a_stream_is_an_error_or_skipped(predict, model):
    for line in BAD_LINES.values():
        piped = b"good\n" + line + b"\nbad\n"
        code, _, said = predict(model, "-", piped=piped)
        assert code == 1
        assert said.startswith("lightbert: line 2 of standard input ")
        assert said.count("\n") == 1
        code, found, said = predict(model, "-", "--bad-rows", "skip", piped=piped)
        assert (code, [record["text"] for record in found]) == (0, ["good", "bad"])
        assert "skipped 1 bad row" in said


def test_a_line_without_an_end_is_an_error(predict, model, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 100)
    code, _, said = predict(model, "-", "--bad-rows", "skip", piped=b"x" * 100_000)
    assert code == 1
    assert "standard input has a line of more than" in said


def test_no_field_of_a_record_is_lost(predict, model):
    record = {"text": "good", "label": "mine", "input_label": "also mine", "probability": 1, "more": {"a": [1]}}
    _, (found,), _ = predict(model, "-", piped=json.dumps(record).encode() + b"\n")
    assert found["label"] in ("bad", "good")
    assert (found["input_input_label"], found["input_label"]) == ("mine", "also mine")
    assert (found["input_probability"], found["more"]) == (1, {"a": [1]})


def test_outputs_that_are_not_finite_are_an_error(predict, tmp_path):
    model = tiny_model(Classify(("bad", "good")))
    # Finite weights whose products are not.
    for parameter in model.heads["classify"].parameters():
        parameter.data.fill_(3e38)
    folder.save(model, tmp_path / "diverged")
    code, found, said = predict(tmp_path / "diverged", "good film", "bad")
    assert (code, found) == (1, [])
    assert "the outputs of the model are not finite: its training has diverged" in said


def test_devices_and_pipes_are_written_and_not_replaced(model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert cli.main(["predict", str(model), "good", "--out", str(tmp_path / "pipe")]) == 0
    assert json.loads(os.read(reader, 10_000))["text"] == "good"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    assert cli.main(["predict", str(model), "good", "--out", os.devnull]) == 0
    assert Path(os.devnull).is_char_device()
