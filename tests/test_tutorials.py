"""Every shell and Python block of the tutorials runs as written."""

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from extras import needs_metrics
from lightbert import cli

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
PAGES = sorted(path.name for path in FOLDER.glob("*.md"))
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# What only a shell can run: pipes, redirections, and programs other than ours.
_SHELL = re.compile(r"[|<>]|^(?!lightbert )")


def run_page(name: str) -> str:
    """Run the blocks of a page in the working directory, and return the page."""
    page = (FOLDER / name).read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for language, block in _BLOCK.findall(page):
        if language == "python":
            exec(block, names)
            continue
        for line in block.replace("\\\n", " ").splitlines():
            if _SHELL.search(line):
                subprocess.run(["bash", "-ec", f"set -o pipefail; {line}"], check=True)
            else:
                # In this process, because importing torch takes seconds.
                assert cli.main(shlex.split(line, comments=True)[1:]) == 0, line
    return page


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and a `lightbert` on the path for lines that need a shell."""
    program = tmp_path / "bin" / "lightbert"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m lightbert "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@needs_metrics
def test_own_text_then_own_labels_then_deploying(there: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_page("own-text.md")
    output = capfd.readouterr()
    assert "the baseline that predicts 'original' for every token" in " ".join(output.out.split())
    assert "'runs/smoke' is already trained" in output.err
    run_page("own-labels.md")
    output = capfd.readouterr()
    assert "own: classify, 2 labels (complaint, praise)" in output.err
    epochs = re.findall(r"^epoch \d of 2: loss \S+, dev accuracy (\S+) \(baseline (\S+)\)$", output.err, re.MULTILINE)
    assert len(epochs) == 2
    # The page shows a run that learns the table.
    assert float(epochs[-1][0]) > float(epochs[-1][1])
    run_page("deploying.md")
    assert (there / "report" / "report.md").exists()
    assert len((there / "predictions.csv").read_text().splitlines()) == 61
    assert "pipeline_tag: text-classification" in capfd.readouterr().out


def test_search(there: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_page("search.md")
    assert "account.md:1" in capfd.readouterr().out.partition("I forgot my login")[2].splitlines()[4]
    answers = (there / "answers.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in answers] == ["query", "My parcel never came", "Please remove all my data"]


@needs_metrics
def test_a_hugging_face_checkpoint(there: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    run_page("hugging-face.md")
    assert "BertForSequenceClassification" in (there / "hf-films" / "config.json").read_text()


def test_the_list_of_tutorials_is_complete() -> None:
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert sorted([*linked, "README.md"]) == PAGES
