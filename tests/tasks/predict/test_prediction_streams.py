"""Streams of texts and of JSON lines, pipes, and outputs that would replace inputs."""

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tiny_classifiers import write_tiny_model

from lightbert import cli
from lightbert.data import text_files
from lightbert.tasks.kinds.classify import Classify

BROKEN = b'{"text": "good"}\n{"text": bro\n\n["bad"]\nfilm\n{"text": "bad"}\n'
COMMANDS = {"predict": ["--out", "out.jsonl"], "embed": ["--out", "out.npy"]}


@pytest.fixture
def model(tmp_path):
    return write_tiny_model(tmp_path / "model", Classify(("bad", "good")))


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder with standard input; return the exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments, piped: bytes | io.BytesIO = b""):
        stream = io.BytesIO(piped) if isinstance(piped, bytes) else piped
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        code = cli.main(list(map(str, arguments)))
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


def test_a_stream_that_begins_with_a_json_object_is_json_lines(run, model):
    code, out, said = run("predict", model, "-", piped=BROKEN)
    assert (code, len(out.splitlines())) == (1, 1)
    assert said == (
        "lightbert: line 2 of standard input must be a JSON object, like the first line; "
        "fix it, or skip such rows with --bad-rows skip\n"
    )


def test_a_stream_whose_header_has_the_column_of_the_text_is_csv(run, model):
    code, out, _ = run("predict", model, "-", "--top", "1", piped=b'id,text\n7,"good, film"\n8,bad\n')
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, [(row["id"], row["text"]) for row in rows]) == (0, [("7", "good, film"), ("8", "bad")])
    for row in rows:
        assert row["probabilities"] == {row["label"]: row["probability"]}
        assert len(str(row["probability"])) <= len("0.123456")
    code, _, said = run("predict", model, "-", piped=b"id,text\n7\n")
    assert (code, "line 2 of standard input has 1 field, but the header has 2" in said) == (1, True)
    options = ("--header", "none", "--text", "1", "--encoding", "utf-16")
    code, out, _ = run("predict", model, "-", *options, piped="7,grüße\n".encode("utf-16"))
    assert (code, json.loads(out)["1"]) == (0, "grüße")


def test_broken_json_lines_are_skipped_and_counted(run, model):
    code, out, said = run("predict", model, "-", "--bad-rows", "skip", piped=BROKEN)
    assert code == 0
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["good", "bad"]
    assert said.startswith("skipped 3 bad rows of standard input; the first: line 2 of standard input must be a JSON")


def test_the_first_readable_line_decides_about_the_format(run, model):
    code, out, _ = run("predict", model, "-", "--bad-rows", "skip", piped=b"\xff\n\n" + BROKEN)
    assert (code, len(out.splitlines())) == (0, 2)
    code, out, _ = run("predict", model, "-", piped=b"film\n" + BROKEN)
    assert (code, len(out.splitlines())) == (0, 6)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_text_file_of_broken_json_lines_is_an_error(run, model, tmp_path, command):
    (tmp_path / "my.txt").write_bytes(BROKEN)
    file = ["--file", "my.txt"] if command == "predict" else ["my.txt"]
    code, _, said = run(command, model, *file, *COMMANDS[command])
    assert (code, "line 2 of 'my.txt' must be a JSON object" in said) == (1, True)


def test_a_long_line_is_an_error_or_skipped(run, model, tmp_path, monkeypatch):
    for source in ["-", "my.txt"]:
        for command in COMMANDS:
            monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 2000)
            content = b"good\n" + b"x" * 3000 + b"\nbad\n"
            (tmp_path / "my.txt").write_bytes(content)
            arguments = [
                command,
                model,
                *(["--file", source] if command == "predict" else [source]),
                *COMMANDS[command],
            ]
            code, _, said = run(*arguments, piped=content)
            assert (code, "line 2 of " in said) == (1, True)
            code, _, said = run(*arguments, "--bad-rows", "skip", piped=content)
            assert (code, "skipped 1 bad row" in said) == (0, True)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_as_a_text_file_is_an_error_instead_of_a_wait(run, model, tmp_path, command):
    os.mkfifo(tmp_path / "my.txt")
    file = ["--file", "my.txt"] if command == "predict" else ["my.txt"]
    code, _, said = run(command, model, *file, *COMMANDS[command])
    assert (code, "'my.txt' must be a regular file" in said) == (1, True)


def test_a_pipe_without_a_reader_says_so_and_waits(run, model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    found = []
    reader = threading.Timer(1.0, lambda: found.append((tmp_path / "pipe").read_text()))
    reader.start()
    code, _, said = run("predict", model, "good", "--out", "pipe")
    reader.join()
    assert (code, json.loads(found[0])["text"]) == (0, "good")
    assert "waiting for a reader of the pipe 'pipe'" in said


@pytest.mark.parametrize("texts", [1, 3000])
def test_a_reader_of_a_pipe_that_leaves_is_an_error(run, model, tmp_path, texts):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    class Leaving(io.BytesIO):
        def readline(self, size=-1, /):
            if self.tell() == 0:
                os.close(reader)
            return super().readline(size)

    code, _, said = run("predict", model, "-", "--out", "pipe", piped=Leaving(b"good\n" * texts))
    assert (code, "the reader of the pipe 'pipe' left before everything was written" in said) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["predict", "--file", "my.jsonl", "--out", "link.jsonl"], "my.jsonl"),
        (["embed", "my.parquet", "--out", "my.parquet"], "my.parquet"),
        (["evaluate", "--data", "predictions.jsonl", "--task", "own", "--out", "."], "predictions.jsonl"),
    ],
    ids=["predict", "embed", "evaluate"],
)
def test_an_output_that_would_replace_the_input_is_an_error(run, model, tmp_path, arguments, name):
    content = b'{"text": "good", "label": "good"}\n'
    (tmp_path / name).write_bytes(content)
    (tmp_path / "link.jsonl").symlink_to(name)
    code, _, said = run(arguments[0], model, *arguments[1:])
    assert code == 1
    assert f"would replace the input '{name}'; choose another name with --out" in said
    assert (tmp_path / name).read_bytes() == content


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="requires /dev/full")
@pytest.mark.parametrize("arguments", [["recipes", "tiny-mlm"], ["recipes", "--json"]], ids=["short", "long"])
def test_a_full_device_as_standard_output_is_one_sentence(arguments):
    command = [sys.executable, "-m", "lightbert", *arguments]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 1
    assert ended.stderr == b"lightbert: cannot write to standard output: No space left on device\n"
