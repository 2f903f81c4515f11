"""A lock on a folder: one process at a time writes to it.

The lock is the operating system's (flock), which ends with the process however it ends: a lock file that a killed
process left behind never blocks. Some network file systems keep such locks on each host separately. There, the holder
shows that it is alive by touching the file, and a process on another host waits until it has stopped doing so.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from lightbert.errors import InputError

NAME = "lock"

_SECONDS_BETWEEN_TOUCHES = 10.0
_SECONDS_OF_SILENCE = 30.0


@contextmanager
def locked(folder: Path, action: str, remedy: str) -> Iterator[None]:
    """Hold the lock of a folder; raise an error that names the process that holds it.

    action: what the other process does, such as "is training in". remedy: what to do about it.
    """
    file = _acquire(folder / NAME, f"{action} '{folder}'", remedy)
    ended = threading.Event()
    touching = threading.Thread(target=_touch, args=(file.fileno(), ended), daemon=True)
    try:
        # Fails if there is no memory for a thread.
        touching.start()
        yield
    finally:
        ended.set()
        if touching.ident is not None:
            touching.join()
        # Another process may have a new lock there by now, if the folder was renamed.
        if _is_at(file, folder / NAME):
            (folder / NAME).unlink()
        file.close()


def _acquire(path: Path, action: str, remedy: str) -> IO[str]:
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            exclusive = _flock(file)
            # The previous holder removes the file before it releases the lock.
            if not _is_at(file, path):
                file.close()
                continue
            holder = _read(file)
            if exclusive is False or (holder and _is_alive(holder, path, exclusive=exclusive is True)):
                raise InputError(f"{_describe(holder)}{',' if holder else ''} {action}; {remedy}")
            _write(file)
        except BaseException:
            file.close()
            raise
        return file


def _flock(file: IO[str]) -> bool | None:
    """Return whether the lock was free; None if the file system has no locks."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_alive(holder: dict[str, Any], path: Path, *, exclusive: bool) -> bool:
    """Return whether the process that wrote the lock file still runs, although the lock itself is free or missing."""
    if holder.get("host") == socket.gethostname():
        return not exclusive and _runs(holder.get("pid"))
    before = path.stat().st_mtime_ns
    print(
        f"waiting up to {_SECONDS_OF_SILENCE:.0f} s: '{path}' is from {_describe(holder).rstrip(',')}", file=sys.stderr
    )
    for _ in range(100):
        time.sleep(_SECONDS_OF_SILENCE / 100)
        if path.stat().st_mtime_ns != before:
            return True
    return False


def _runs(pid: Any) -> bool:
    try:
        os.kill(int(pid), 0)
    except (OSError, TypeError, ValueError):
        return False
    return True


def _touch(descriptor: int, ended: threading.Event) -> None:
    while not ended.wait(_SECONDS_BETWEEN_TOUCHES):
        with suppress(OSError):
            os.utime(descriptor)


def _is_at(file: IO[str], path: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _read(file: IO[str]) -> dict[str, Any]:
    file.seek(0)
    with suppress(ValueError):
        content = json.loads(file.read())
        return content if isinstance(content, dict) else {}
    return {}


def _write(file: IO[str]) -> None:
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    file.truncate(0)
    file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "started": now}) + "\n")
    file.flush()


def _describe(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    return f"process {holder.get('pid')} on {holder.get('host')}, started {holder.get('started')}"
