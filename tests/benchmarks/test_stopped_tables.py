"""A table that stops early, by time, signal, failure or exception: what is returned, and what is said to be missing."""

import threading
from types import SimpleNamespace

import pytest
from faked_table import SECONDS, TABLE, A, B, C, finish, name_of, protocol, record_bar, record_starts, write_result

from benchmarks import paper_runs
from benchmarks.paper_runs import folder_of
from lightbert.train.signals import EXIT_CODE, Interruption


def test_a_table_that_stops_early_returns_finished_rows_and_says_what_is_missing(tmp_path, monkeypatch, capsys):
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(paper_runs, "time", clock)

    def run(command):
        if name_of(command) != "b.1":
            return write_result(command)
        clock.monotonic = lambda: 61.0
        return EXIT_CODE

    names, bars = record_starts(monkeypatch, run), record_bar(monkeypatch)
    outcomes = paper_runs.run_table(TABLE, protocol(tmp_path, minutes=1))
    assert names == ["a", "a.0", "a.1", "b", "b.0", "b.1"]
    assert [outcome.arm for outcome in outcomes] == [A]
    assert capsys.readouterr().err.splitlines() == [
        "row b, seed 0: pre-trained, 1 of 2 fine-tunings finished",
        "row c, seed 0: pre-training not started",
    ]
    assert (bars[0].done, bars[0].total) == (5, 9)
    names.clear()
    interrupted = Interruption()
    interrupted.signal = 15
    outcomes = paper_runs.run_table(TABLE, protocol(tmp_path, task_seeds=(0,)), interrupted)
    assert not names
    assert [outcome.arm for outcome in outcomes] == [A, B]


def test_a_signal_stops_all_processes_and_finished_rows_stay_in_the_order_of_the_table(tmp_path, monkeypatch, capsys):
    whole, interrupted = protocol(tmp_path, jobs=2), Interruption()
    for arm in (C, A):
        finish(arm, whole, *whole.task_seeds)

    def run(command):
        interrupted.signal = 15
        return EXIT_CODE

    names, bars = record_starts(monkeypatch, run), record_bar(monkeypatch)
    outcomes = paper_runs.run_table(TABLE, whole, interrupted)
    assert names == ["b"]
    assert [outcome.arm for outcome in outcomes] == [A, C]
    assert capsys.readouterr().err.splitlines() == ["row b, seed 0: pre-training not finished"]
    assert bars[0].done == 6


@pytest.mark.parametrize("jobs", [1, 2])
def test_other_rows_go_on_if_one_fails(tmp_path, monkeypatch, capsys, jobs):
    names = record_starts(monkeypatch, lambda command: 1 if name_of(command) in ("a", "b.0") else write_result(command))
    bars = record_bar(monkeypatch)
    outcomes = paper_runs.run_table(TABLE, protocol(tmp_path, jobs=jobs))
    assert sorted(names) == ["a", "b", "b.0", "b.1", "c", "c.0", "c.1"]
    assert [outcome.arm for outcome in outcomes] == [C]
    lines = capsys.readouterr().err.splitlines()
    assert f"row a, seed 0: pretrain failed; see {tmp_path / 'a-0.log'}" in lines
    assert f"row b, seed 0: finetune failed; see {tmp_path / 'b-0-0.log'}" in lines
    assert lines[-2:] == [
        "row a, seed 0: pre-training not finished",
        "row b, seed 0: pre-trained, 1 of 2 fine-tunings finished",
    ]
    assert bars[0].done == 7


def test_an_exception_stops_the_other_processes_and_reaches_the_caller(tmp_path, monkeypatch):
    names, b_runs, b_stopped = [], threading.Event(), threading.Event()

    def run(command, log, is_over, *_):
        names.append(name_of(command))
        if names[-1] == "a":
            assert b_runs.wait(SECONDS)
            raise OSError("no space left")
        b_runs.set()
        for _ in range(int(100 * SECONDS)):
            if is_over():
                b_stopped.set()
                break
            threading.Event().wait(0.01)
        return EXIT_CODE

    monkeypatch.setattr(paper_runs, "run_command", run)
    before = threading.active_count()
    with pytest.raises(OSError, match="no space left"):
        paper_runs.run_table(TABLE, protocol(tmp_path, jobs=2))
    assert b_stopped.is_set()
    assert sorted(names) == ["a", "b"]
    assert threading.active_count() == before


def test_a_damaged_result_reaches_the_caller_too(tmp_path, monkeypatch):
    def run(command):
        write_result(command)
        (folder_of(A, 0, protocol(tmp_path)) / "result.json").write_text("{}")
        return 0

    names = record_starts(monkeypatch, run)
    with pytest.raises(KeyError, match="held_out"):
        paper_runs.run_table(TABLE, protocol(tmp_path))
    assert names == ["a"]


def test_results_that_were_removed_are_named(tmp_path, monkeypatch, capsys):
    record_starts(monkeypatch, lambda command: 0 if name_of(command).startswith("b") else write_result(command))
    assert [outcome.arm for outcome in paper_runs.run_table(TABLE, protocol(tmp_path))] == [A, C]
    state = "row b, seed 0: pre-trained, 2 of 2 fine-tunings finished"
    assert f"{state}; results are missing in 'b-0'" in capsys.readouterr().err.splitlines()
