"""One process at a time writes to a folder; a lock that a killed process left behind never blocks."""

import json
import multiprocessing
import os
import signal
import socket
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from lightbert.errors import InputError
from lightbert.files import LOCK, locked

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
    assert json.loads((tmp_path / LOCK).read_text())["pid"] == killed.process.pid
    began = time.monotonic()
    with locked(tmp_path, "is training in", "wait for it"):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("content", ["mine", "{", "[1]", '{"pid": 17}'])
def test_a_file_of_the_user_in_place_of_the_lock_is_kept(tmp_path: Path, content: str) -> None:
    (tmp_path / LOCK).write_text(content)
    (tmp_path / "lock").write_text("mine")
    with pytest.raises(InputError, match="is not a lock that lightbert wrote"), locked(tmp_path, "is in", "wait"):
        pass
    assert (tmp_path / LOCK).read_text() == content
    (tmp_path / LOCK).unlink()
    with locked(tmp_path, "is in", "wait"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_the_target_of_a_link_in_place_of_the_lock_is_kept(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "diary").write_text("mine")
    (tmp_path / "out" / LOCK).symlink_to(tmp_path / "diary")
    with (
        pytest.raises(InputError, match="is not a lock that lightbert wrote"),
        locked(tmp_path / "out", "is in", "wait"),
    ):
        pass
    assert (tmp_path / "diary").read_text() == "mine"


def test_an_empty_lock_file_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    with locked(tmp_path, "is training in", "wait for it"):
        pass
    assert list(tmp_path.iterdir()) == []
