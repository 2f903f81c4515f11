"""Measurements run in a process that was started with their number of threads."""

import json
import os
import signal
from dataclasses import replace

import pytest

from benchmarks import latency
from benchmarks.latency import Settings, call_with_threads, measure
from lightbert.errors import InputError, is_out_of_memory

FUNCTIONS = """
import json, os, signal

def threads(report):
    import torch
    return json.dumps([os.environ["OMP_NUM_THREADS"], torch.get_num_threads(), os.getpid()])

def abort(report):
    os.kill(os.getpid(), signal.SIGKILL)

def fail(report):
    raise MemoryError("Unable to allocate 7 GiB")
"""

SETTINGS = Settings(models=("bert-tiny",), runtimes=("torch",), length=7, threads=1, rounds=2)


@pytest.fixture
def functions(tmp_path, monkeypatch):
    (tmp_path / "functions_with_threads.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def calls(monkeypatch):
    """The numbers of threads of the processes that a measurement starts."""
    seen: list[int] = []

    def call(function, arguments, threads, report):
        seen.append(threads)
        return call_with_threads(function, arguments, threads, report)

    monkeypatch.setattr(latency, "call_with_threads", call)
    return seen


@pytest.mark.usefixtures("functions")
def test_a_process_is_started_with_the_number_of_threads(monkeypatch):
    # Without a number, torch uses all cores, and with MKL never more.
    monkeypatch.delenv("OMP_NUM_THREADS")
    variable, threads, process = json.loads(
        call_with_threads("functions_with_threads:threads", [], 1, lambda done: None)
    )
    assert (variable, threads) == ("1", 1)
    assert process != os.getpid()


@pytest.mark.usefixtures("functions")
def test_a_process_that_fails_is_an_error_that_says_why():
    with pytest.raises(InputError, match=f"was ended by {signal.SIGKILL.name}; if memory ran out"):
        call_with_threads("functions_with_threads:abort", [], 1, lambda done: None)
    with pytest.raises(RuntimeError, match="failed:\nTraceback") as caught:
        call_with_threads("functions_with_threads:fail", [], 1, lambda done: None)
    assert is_out_of_memory(caught.value)


def test_a_measurement_with_another_number_of_threads_is_that_of_another_process(calls, monkeypatch, capsys):
    monkeypatch.delenv("OMP_NUM_THREADS")
    pairs = (("convbert-tiny", "torch"), ("bert-tiny", "torch"))
    settings = replace(SETTINGS, pairs=pairs)
    found = measure(settings)
    assert calls == [1]
    assert found.settings == settings
    assert tuple((row.model, row.runtime) for row in found.rows) == pairs
    assert found.rows[0].ratio == found.rows[0].cpu_ratio == 1.0
    assert all(row.milliseconds > 0 and row.cpu > 0 and row.megabytes > 0 for row in found.rows)
    printed = capsys.readouterr().err
    assert "latency: 4/4 models and rounds" in printed


def test_an_error_of_the_other_process_has_the_same_words(calls):
    with pytest.raises(InputError, match=r"^length must be <= 128, the positions of bert-tiny$"):
        measure(replace(SETTINGS, length=4096, threads=2))
    assert calls == [2]


@pytest.mark.parametrize(("threads", "variable"), [(1, "1"), (0, "1"), (0, None)])
def test_no_process_is_started_without_need(calls, monkeypatch, capsys, threads, variable):
    if variable is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    found = measure(replace(SETTINGS, threads=threads))
    assert len(found.rows) == 1
    assert calls == []
    printed = capsys.readouterr().err
    assert "latency: 3/3 models and rounds" in printed
