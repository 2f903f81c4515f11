"""The page of latencies has the papers' figures next to measured ones."""

import sys

import pytest

from benchmarks import latency_page
from benchmarks.latency import RUNTIMES
from benchmarks.latency_files import BLOCKS
from benchmarks.latency_limits import AIMS, EXECUTORCH_AIMS
from benchmarks.latency_page import TABLES, PaperTable, Row, page
from benchmarks.pages import commit
from extras import needs_onnx
from lightbert.errors import InputError
from lightbert.models import PRESETS


@needs_onnx
def test_the_page_has_a_row_per_row_of_the_paper():
    table = PaperTable("A table", "Its setting.", 7, (Row("one", "bert-tiny", 100), Row("two", "convbert-tiny", 80)))
    content = page([table], [], threads=(2,), rounds=2, command="the command")
    assert f"Written by `the command` at commit {commit()}" in content
    assert "## A table\nIts setting.\n" in content
    rows = [line.strip("| ").split(" | ") for line in content.splitlines() if line.startswith(("| one", "| two"))]
    assert [row[:3] for row in rows] == [["one", "100", "1.00"], ["two", "80", "0.80"]]
    assert rows[0][4] == rows[0][6] == "1.00"
    assert all(float(cell) > 0 for row in rows for cell in row[3:])


@needs_onnx
def test_every_available_runtime_is_measured(monkeypatch):
    monkeypatch.setattr(latency_page, "find_spec", lambda package: None)
    content = page([], [], ["bert-tiny"], threads=(1,), rounds=1, command="the command")
    rows = [line.strip("| ").split(" | ") for line in content.splitlines() if "-tiny |" in line]
    runtimes = [RUNTIMES[name] for name in ("torch", "compiled", "onnx", "int8")]
    assert [row[:2] for row in rows] == [["bert-tiny", runtime] for runtime in runtimes]
    assert rows[0][4] == "1.00"
    assert "Not installed, and not measured: executorch, executorch-int8, peer, peer-onnx, peer-int8." in content


def test_a_missing_package_is_found_before_anything_is_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setattr(latency_page, "measure", lambda settings, folder: pytest.fail("measured"))
    with pytest.raises(InputError, match=r"the runtime peer-onnx requires onnxscript; install it with"):
        page(TABLES, AIMS, threads=(1,), rounds=1, command="the command")


def test_aims_of_executorch_are_measured_where_it_is_installed(tmp_path, monkeypatch):
    for installed in (False, True):
        monkeypatch.setattr(latency_page, "find_spec", lambda package, found=installed: found or None)
        measured = []
        monkeypatch.setattr(
            latency_page, "page", lambda tables, aims, models, measured=measured, **_: measured.append(aims) or "a page"
        )
        monkeypatch.setattr(sys, "argv", ["latency_page", "--out", str(tmp_path / "page.md")])
        latency_page.main()
        assert measured == [(*AIMS, *EXECUTORCH_AIMS) if installed else AIMS]
        assert (tmp_path / "page.md").read_text() == "a page"


def test_the_tables_are_those_of_the_papers():
    assert [len(table.rows) for table in TABLES] == [2, 3, 4]
    models = [row.model for table in TABLES for row in table.rows]
    for model in [*models, *(each.model for aim in (*AIMS, *EXECUTORCH_AIMS) for each in (aim.ours, aim.other))]:
        assert model in BLOCKS or model.split(":")[0] in PRESETS
