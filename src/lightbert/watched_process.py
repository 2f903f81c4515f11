"""Runs a function in a process of its own and watches it.

A library that is not written in Python can abort its process when memory runs out, or wait forever for a thread that
could not be started. Here that ends the other process only, and the caller gets an exception. The new process imports
nothing but the module of the function. It ends when the process that started it ends, in any way.
"""

import errno
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from lightbert.errors import InputError

Report = Callable[[int], None]

_SECONDS_BETWEEN_LOOKS = 0.1
_IDLE_LOOKS = 300
# Added to the number of an error in an exit status.
_DISK = 64
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
# `python -m` would find lightbert only where the interpreter looks by default.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from lightbert.watched_process import main; "
    "main(*sys.argv[2:])"
)


class ProcessFailedError(Exception):
    """The process ended without a result; `printed` is what it wrote to standard error, `code` its exit status.

    The exit status is negative for a signal, and None if the process was ended because it had stopped working.
    """

    def __init__(self, code: int | None, printed: str) -> None:
        super().__init__(f"a process ended with {code}: {printed}")
        self.code, self.printed = code, printed


def call(
    function: str,
    arguments: Sequence[Any],
    folder: Path,
    *,
    report: Report,
    environment: Mapping[str, str],
    waits: bool = False,
) -> str:
    """Return the string that `function`, written as "module:name", returns in another process.

    It is called with a function that passes its progress, a number, to `report`, and with the arguments, which must be
    JSON. While there is no news, `report` is called with the last number. An `InputError` is raised here, and the
    OSError of a full disk.

    folder: a folder for temporary files. environment: added to the environment variables. waits: the process may wait
    for other processes for a long time, and is never taken for one that has stopped working.
    """
    with temporary_file(folder, "output") as output, temporary_file(folder, "errors") as errors:
        with errors.open("wb") as stderr:
            process = start(function, arguments, output, stderr, environment)
        try:
            code = _wait(process, output, report, waits=waits)
        finally:
            # Also after Ctrl-C: nothing keeps running.
            end(process)
        *reports, last = [{"done": 0}, *_messages(output, 0)[0]]
        if code == 0 and "result" in last:
            report(reports[-1]["done"])
            return str(last["result"])
        if "error" in last:
            raise InputError(str(last["error"]))
        if code is not None and code - _DISK in _DISK_ERRORS:
            raise OSError(code - _DISK, os.strerror(code - _DISK), str(folder))
        raise ProcessFailedError(code, errors.read_text(encoding="utf-8", errors="replace"))


def start(
    function: str, arguments: Sequence[Any], output: Path, errors: IO[bytes] | int, environment: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    """Start the process of `call`, which ends when this one does; its reports and its result go to `output`."""
    # The entries that imports look at.
    path = json.dumps([each for each in sys.path if isinstance(each, str)])
    return subprocess.Popen(
        [sys.executable, "-c", _START, path, str(output), function, json.dumps(arguments)],
        # The other process ends when its standard input does.
        stdin=subprocess.PIPE,
        stdout=errors,
        stderr=errors,
        env={**os.environ, **environment},
    )


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process, if it has not ended."""
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _wait(process: "subprocess.Popen[bytes]", output: Path, report: Report, *, waits: bool) -> int | None:
    idle, before, offset, done = 0, "", 0, 0
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_SECONDS_BETWEEN_LOOKS)
        messages, offset = _messages(output, offset)
        done = next((each["done"] for each in reversed(messages) if "done" in each), done)
        report(done)
        now = "" if waits else _activity(process.pid)
        # Counted instead of timed, so that a suspended program doesn't find its process idle when it is resumed.
        idle = idle + 1 if now and now == before else 0
        before = now
        if idle >= _IDLE_LOOKS:
            return None


def _activity(pid: int) -> str:
    """Return the processor time of all threads; "" if one of them runs or waits for a disk, or on other systems."""
    times = []
    with suppress(OSError, IndexError):
        for thread in sorted(Path(f"/proc/{pid}/task").iterdir()):
            # The name of the program, in parentheses, may contain spaces.
            fields = (thread / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "S":
                return ""
            times.append(f"{thread.name}:{fields[11]}:{fields[12]}")
    return " ".join(times)


def _messages(output: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Return the complete lines of the output from an offset on, and the offset after them."""
    if not output.exists():
        return [], offset
    with output.open("rb") as file:
        file.seek(offset)
        complete = file.read().rpartition(b"\n")[0]
    lines = complete.splitlines()
    return [json.loads(line) for line in lines], offset + len(complete) + 1 if lines else offset


@contextmanager
def temporary_file(folder: Path, name: str) -> Iterator[Path]:
    """Yield the path of a temporary file in a folder; the file is removed at the end."""
    path = folder / f".{name}.tmp-{os.getpid()}"
    path.unlink(missing_ok=True)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def main(output: str, function: str, arguments: str) -> None:
    """Call a function in the other process, and write what it reports and returns to `output` as lines of JSON."""
    # Ctrl-C is sent to all processes of a terminal, but only the first one handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_standard_input()
    module, _, name = function.partition(":")
    with _errors_of_the_disk(), Path(output).open("a", encoding="utf-8") as file:

        def write(**message: Any) -> None:
            file.write(json.dumps(message) + "\n")
            file.flush()

        try:
            called = getattr(importlib.import_module(module), name)
            result = called(lambda done: write(done=done), *json.loads(arguments))
        except InputError as error:
            write(error=str(error))
            sys.exit(1)
        write(result=result)


@contextmanager
def _errors_of_the_disk() -> Iterator[None]:
    """Report them by the exit status, because there may be no space for a message."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        os._exit(_DISK + error.errno)


def _end_with_standard_input() -> None:
    """Let the system end this process when the other end of its standard input is closed.

    A thread that waits for that could not end a process whose interpreter is blocked.
    """
    if sys.platform == "linux":
        import fcntl

        # The default action of the signal, SIGIO, ends the process.
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([0], [], [], 0)[0]:
            os._exit(1)
