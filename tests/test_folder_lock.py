"""One process at a time writes to a folder; a lock that a killed process left behind never blocks."""

import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from lightbert import folder_lock
from lightbert.errors import InputError
from lightbert.folder_lock import NAME, locked

SPAWN = multiprocessing.get_context("spawn")


def hold(folder: Path, pipe: Connection) -> None:
    """The body of a child process: lock the folder until a message arrives."""
    try:
        with locked(folder, "is training in", "wait for it"):
            pipe.send("locked")
            pipe.recv()
        pipe.send("released")
    except InputError as error:
        pipe.send(str(error))


class Holder:
    """A child process that tries to lock a folder."""

    def __init__(self, folder: Path) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=hold, args=(folder, theirs))
        self.process.start()
        self.answer = self.pipe.recv()

    def release(self) -> None:
        self.pipe.send("release")
        assert self.pipe.recv() == "released"
        self.process.join()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


def test_three_processes_hold_the_lock_one_after_the_other(tmp_path: Path) -> None:
    first = Holder(tmp_path)
    assert first.answer == "locked"
    second = Holder(tmp_path)
    named = f"process {first.process.pid} on {socket.gethostname()}, started "
    assert second.answer.startswith(named)
    assert second.answer.endswith(f" is training in '{tmp_path}'; wait for it")
    with pytest.raises(InputError, match=named), locked(tmp_path, "is training in", "wait for it"):
        pass
    first.release()
    third = Holder(tmp_path)
    assert third.answer == "locked"
    third.release()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    killed = Holder(tmp_path)
    killed.kill()
    assert json.loads((tmp_path / NAME).read_text())["pid"] == killed.process.pid
    began = time.monotonic()
    with locked(tmp_path, "is training in", "wait for it"):
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
    assert time.monotonic() - began < 2


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "_SECONDS_OF_SILENCE", 0.5)
    monkeypatch.setattr(folder_lock, "_SECONDS_BETWEEN_TOUCHES", 0.05)


def write_lock_of_another_host(folder: Path) -> None:
    (folder / NAME).write_text(json.dumps({"host": "elsewhere", "pid": 17, "started": "then"}))


@pytest.mark.usefixtures("_quick")
def test_a_silent_lock_of_another_host_is_taken_over_after_a_while(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lock_of_another_host(tmp_path)
    with locked(tmp_path, "is training in", "wait for it"):
        pass
    assert "is from process 17 on elsewhere, started then" in capsys.readouterr().err


@pytest.mark.usefixtures("_quick")
def test_a_process_on_another_host_that_is_alive_keeps_its_lock(tmp_path: Path) -> None:
    write_lock_of_another_host(tmp_path)
    ended = threading.Event()
    descriptor = os.open(tmp_path / NAME, os.O_RDONLY)
    alive = threading.Thread(target=folder_lock._touch, args=(descriptor, ended))
    alive.start()
    with (
        pytest.raises(InputError, match="process 17 on elsewhere, started then, is training in"),
        locked(tmp_path, "is training in", "wait for it"),
    ):
        pass
    ended.set()
    alive.join()
    os.close(descriptor)


def test_without_locks_of_the_file_system_a_running_process_keeps_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "_flock", lambda file: None)
    holder = Holder(tmp_path)
    with (
        pytest.raises(InputError, match=f"process {holder.process.pid} on"),
        locked(tmp_path, "is training in", "wait for it"),
    ):
        pass
    holder.kill()
    with locked(tmp_path, "is training in", "wait for it"):
        pass


def test_a_damaged_lock_file_is_replaced(tmp_path: Path) -> None:
    for content in ("", "{", "[1]", "\x00"):
        (tmp_path / NAME).write_text(content)
        with locked(tmp_path, "is training in", "wait for it"):
            pass
