"""docs/vectors.md matches the command."""

import re
import shlex
from pathlib import Path

import pytest
from command_options import option_names
from tiny_classifiers import write_tiny_model

from lightbert import cli
from lightbert.commands.predict import embed

PAGE = (Path(__file__).parents[3] / "docs" / "vectors.md").read_text(encoding="utf-8")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """The model and the files used by the examples of the page."""
    write_tiny_model(tmp_path / "runs" / "mine" / "final", None)
    (tmp_path / "my.txt").write_text("good film\nbad film\n")
    (tmp_path / "my.csv").write_text("id,body\n1,good film\n")
    (tmp_path / "my.jsonl").write_text('{"id": 1, "body": "good film"}\n')
    monkeypatch.chdir(tmp_path)


def test_the_page_lists_every_option():
    section = PAGE.partition("\n## ")[0]
    assert set(re.findall(r"--[a-z][a-z-]+", section)) == option_names(embed) - {"--help", "model", "file"}


@pytest.mark.parametrize("line", [line for line in PAGE.splitlines() if line.startswith("lightbert embed runs")])
def test_every_example_runs(runs, line):
    if ".parquet" in line:
        pytest.importorskip("pyarrow")
    assert cli.main(shlex.split(line)[1:]) == 0


def test_every_search_runs(runs):
    for line in PAGE.splitlines():
        if line.startswith("lightbert search my-index"):
            assert cli.main(shlex.split(line)[1:]) == 0


def test_the_python_example_runs(runs):
    assert cli.main(["embed", "runs/mine/final", "my.txt", "--out", "vectors.npy"]) == 0
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example, {})
