"""Commands in processes: finished ones are recorded, and others stopped when the time is over."""

import signal
import threading
from pathlib import Path

import pytest

from benchmarks import runs
from benchmarks.runs import Run, environment, run_chains, run_command


@pytest.fixture
def started(monkeypatch):
    """Replace processes by `codes`, command -> exit code; return the names of the commands that are started."""
    names: list[str] = []
    codes: dict[str, int] = {}

    def start(command, log, *_):
        names.append(command[1])
        log.touch()
        return codes.get(command[1], 0)

    monkeypatch.setattr(runs, "run_command", start)
    return names, codes


def chain(folder, *names):
    return [Run(["lightbert", name], folder / name) for name in names]


def test_a_command_that_fails_ends_its_chain_and_only_what_is_not_finished_runs_again(tmp_path, started, capsys):
    names, codes = started
    codes["b"] = 1
    chains = [chain(tmp_path, "a", "b", "c"), chain(tmp_path, "d")]
    assert not run_chains(chains, 1, lambda: False)
    assert names == ["a", "b", "d"]
    assert f"lightbert b failed; see {tmp_path / 'b.log'}" in capsys.readouterr().err
    names.clear()
    codes.clear()
    assert run_chains([*chains, chain(tmp_path, "e")], 1, lambda: False)
    assert names == ["b", "c", "e"]
    assert chains[0][0].commit
    assert not Run(["lightbert", "a", "steps=7"], tmp_path / "a").commit


def test_chains_that_have_begun_come_first(tmp_path, started):
    (tmp_path / "b.log").touch()
    assert run_chains([chain(tmp_path, "a"), chain(tmp_path, "b")], 1, lambda: False)
    assert started[0] == ["b", "a"]


def test_nothing_is_started_when_the_time_is_over(tmp_path, started, capsys):
    assert not run_chains([chain(tmp_path, "a")], 1, lambda: True)
    assert not started[0]
    assert not capsys.readouterr().err


def test_an_exception_stops_the_other_processes_and_reaches_the_caller(tmp_path, monkeypatch):
    runs_b, stopped = threading.Event(), threading.Event()

    def start(command, log, is_over, *_):
        if command[1] == "a":
            assert runs_b.wait(20)
            raise OSError("no space left")
        runs_b.set()
        while not is_over():
            stopped.wait(0.01)
        stopped.set()
        return 75

    monkeypatch.setattr(runs, "run_command", start)
    with pytest.raises(OSError, match="no space left"):
        run_chains([chain(tmp_path, "a"), chain(tmp_path, "b")], 2, lambda: False)
    assert stopped.is_set()


PATIENT = """
import pathlib, signal, sys, time
def stop(*_):
    pathlib.Path("saved").touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, {action})
pathlib.Path("ready").touch()
time.sleep(600)
"""


def test_a_process_is_told_to_save_when_the_time_is_over_and_killed_if_it_does_not_stop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for action, grace, code in (("stop", 60.0, 75), ("signal.SIG_IGN", 0.01, -signal.SIGKILL)):
        Path("ready").unlink(missing_ok=True)
        Path("patient.py").write_text(PATIENT.format(action=action))
        monkeypatch.setattr(runs, "_GRACE", grace)
        assert run_command(["patient"], tmp_path / "log", Path("ready").exists, environment(jobs=2)) == code
    assert Path("saved").exists()
    assert Path("log").read_text().startswith("$ patient")


def test_the_cores_are_divided_among_the_jobs_unless_their_number_is_set(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    assert environment(jobs=5)["OMP_NUM_THREADS"] == "3"
    assert environment(jobs=32)["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert environment(jobs=5)["OMP_NUM_THREADS"] == "7"
