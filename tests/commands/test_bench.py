"""`lightbert bench` lists its benchmarks, and docs/benchmarks.md the programs of the repository."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from lightbert import cli
from lightbert.commands.bench import BENCHMARKS


def test_without_a_name_all_benchmarks_are_listed(capsys):
    assert cli.main(["bench", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["benchmarks"].keys() == BENCHMARKS.keys()
    assert cli.main(["bench"]) == 0
    out = capsys.readouterr().out
    assert all(line.split(" --")[0] in out for line, _ in BENCHMARKS.values())
    assert "docs/benchmarks.md" in out


def test_the_documentation_has_all_programs():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"python -m benchmarks\.([a-z_]+)", page))
    assert all(importlib.util.find_spec(f"benchmarks.{name}") for name in documented)
    programs = {path.stem for path in (root / "benchmarks").glob("*.py") if "\n    run_main(" in path.read_text()}
    programs |= {path.parent.name for path in (root / "benchmarks").glob("*/__main__.py")}
    assert programs == documented


def test_pages_of_results_name_programs_that_print_their_help(monkeypatch, capsys):
    docs = Path(__file__).parents[2] / "docs"
    pages = [*(docs / "results").glob("*.md"), docs / "scaling.md", docs / "finetuning.md", docs / "data.md"]
    named = {name for page in pages for name in re.findall(r"python -m benchmarks\.([a-z_]+)", page.read_text())}
    assert len(named) > 6
    for name in sorted(named):
        package = importlib.util.find_spec(f"benchmarks.{name}").submodule_search_locations is not None
        program = importlib.import_module(f"benchmarks.{name}.__main__" if package else f"benchmarks.{name}")
        monkeypatch.setattr("sys.argv", [name, "--help"])
        with pytest.raises(SystemExit, match="0"):
            program.main()
        assert "usage: " in capsys.readouterr().out, name


def test_an_unknown_benchmark_is_one_sentence(capsys):
    assert cli.main(["bench", "latenc"]) == 1
    assert "unknown benchmark 'latenc'; did you mean 'latency'?" in capsys.readouterr().err
