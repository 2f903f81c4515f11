"""What the user has is neither replaced nor able to control the terminal."""

import gzip
import json
import sys
from pathlib import Path

import pytest
from tiny_classifiers import write_tiny_model

from extras import needs_plots
from lightbert.cli import main
from lightbert.data import text_files
from lightbert.errors import InputError
from lightbert.tasks.datasets.squad import read_json
from lightbert.tasks.kinds.classify import Classify


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_tiny_model(tmp_path / "model", Classify(("bad", "good"))))


@pytest.mark.parametrize("name", ["report.json", "report.md", "predictions.jsonl"])
def test_evaluate_replaces_only_what_it_wrote(
    model: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data.csv").write_text("text,label\ngood film,good\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine")
    command = ["evaluate", model, "--data", str(tmp_path / "data.csv"), "--out", str(tmp_path / "out")]
    assert main(command) == 1
    assert f"{name}' exists, and lightbert did not write it" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {name: "mine"}
    assert main([*command, "--overwrite"]) == 0
    assert (tmp_path / "out" / name).read_text() != "mine"
    assert main(command) == 0


@needs_plots
@pytest.mark.parametrize("name", ["out.html", "out.json", "out.png", "out.svg", "out/report.html", "out/report.json"])
def test_analyse_replaces_only_what_it_wrote(
    model: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    out = mine if mine.parent == tmp_path else mine.parent
    command = ["analyse", "attention", model, "--text", "good film", "--layers", "1", "--out", str(out)]
    assert main(command) == 1
    assert "choose another --out, or add --overwrite" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert main([*command, "--overwrite"]) == 0
    assert main(command) == 0


@pytest.mark.parametrize("command", ["predict", "embed"])
def test_standard_input_is_not_replaced_by_the_output(
    model: str, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / ("in.jsonl" if command == "predict" else "in.npy")
    path.write_text('{"text": "good film"}\n')
    with path.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert main([command, model, "-", "--out", str(path)]) == 1
    assert "would replace the input on standard input" in capsys.readouterr().err
    assert path.read_text() == '{"text": "good film"}\n'


def test_control_characters_of_a_file_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "\x1b]0;owned\x07\x1b[2J\u202e"
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name}))
    assert main(["info", str(tmp_path)]) == 1
    assert main(["info", str(tmp_path / name)]) == 1
    printed = capsys.readouterr().err
    assert not set("\x1b\x07\u202e") & set(printed)
    assert r"\x1b[2J" in printed


def test_a_compressed_document_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "MAX_DOCUMENT", 1000)
    (tmp_path / "dev.json.gz").write_bytes(gzip.compress(bytes(1_000_000)))
    with pytest.raises(InputError, match="must have at most 1,000 bytes when decompressed"):
        read_json(tmp_path / "dev.json.gz")
