"""A function in another process: its result, its progress, and every way in which the process can end."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lightbert.errors import InputError
from lightbert.processes import ProcessFailedError, call

FUNCTIONS = """
import os, signal, sys, threading, time
from pathlib import Path
from lightbert.errors import InputError

def double(report, text):
    report(1)
    report(2)
    return text * 2

def modules(report):
    return " ".join(sys.modules)

def variable(report, name):
    return os.environ.get(name, "")

def noisy(report):
    print("a library prints")
    return "quiet"

def bad_input(report):
    report(1)
    raise InputError("the sources have no text")

def fill_disk(report):
    report(1)
    raise OSError(28, "No space left on device", "somewhere")

def fail(report):
    raise ValueError("a bug")

def abort(report):
    print("memory allocation of 8 bytes failed", file=sys.stderr, flush=True)
    os.abort()

def leave(report):
    report(1)
    os._exit(0)

def hang(report, pid_file):
    Path(pid_file).write_text(str(os.getpid()))
    report(1)
    threading.Event().wait()

def spin(report, pid_file):
    Path(pid_file).write_text(str(os.getpid()))
    while True:
        pass
"""

PARENT = """
import signal, sys
from lightbert.processes import call
# Ignored if the tests run in the background of a script.
signal.signal(signal.SIGINT, signal.default_int_handler)
call(sys.argv[1], [sys.argv[2]], report=lambda done: None, environment={})
"""


@pytest.fixture(autouse=True)
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/watched_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path / "modules")


def called(name: str, *arguments: str, report=lambda done: None, **environment: str) -> str:
    return call(f"watched_functions:{name}", arguments, report=report, environment=environment)


def wait_until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.02)


def runs(pid: int) -> bool:
    """Whether a process exists that is not a zombie, which no process may have waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_result_and_the_last_progress_arrive() -> None:
    seen: list[int] = []
    assert called("double", "añ\n", report=seen.append) == "añ\nañ\n"
    assert seen[-1] == 2


def test_the_process_imports_neither_numpy_nor_torch() -> None:
    assert not {"numpy", "torch", "tokenizers", "typer"}.intersection(called("modules").split())


def test_variables_are_added_to_the_environment() -> None:
    assert called("variable", "LIGHTBERT_TEST", LIGHTBERT_TEST="5") == "5"
    assert called("variable", "PATH") == os.environ["PATH"]


def test_what_a_library_prints_is_not_part_of_the_result(capfd: pytest.CaptureFixture[str]) -> None:
    assert called("noisy") == "quiet"
    assert capfd.readouterr() == ("", "")


def test_bad_input_is_raised_with_its_sentence() -> None:
    with pytest.raises(InputError, match=r"^the sources have no text$"):
        called("bad_input")


def test_a_full_disk_is_the_error_of_the_system() -> None:
    with pytest.raises(OSError, match="No space left on device") as caught:
        called("fill_disk")
    assert caught.value.errno == errno.ENOSPC


def test_a_process_that_ends_without_a_result_is_an_error():
    for name, code, printed in [
        ("fail", 1, "ValueError: a bug"),
        ("abort", -signal.SIGABRT, "allocation of 8 bytes failed"),
        ("leave", 0, ""),
    ]:
        with pytest.raises(ProcessFailedError) as caught:
            called(name)
        assert caught.value.code == code
        assert printed in caught.value.printed


linux = pytest.mark.skipif(sys.platform != "linux", reason="requires /proc")


@linux
@pytest.mark.parametrize("name", ["hang", "spin"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_when_the_program_is_interrupted_or_killed(
    tmp_path: Path, name: str, number: signal.Signals
) -> None:
    pid = tmp_path / "pid"
    path = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", PARENT, f"watched_functions:{name}", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as parent:
        wait_until(lambda: pid.exists() and pid.read_text().isdigit())
        parent.send_signal(number)
        parent.communicate()
    assert parent.returncode in (-number, 1)
    wait_until(lambda: not runs(int(pid.read_text())))
