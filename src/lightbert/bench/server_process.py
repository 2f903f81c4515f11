"""A server as a process on the loopback address: its port, its memory, its end."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lightbert.errors import InputError


@dataclass(frozen=True)
class ServerProcess:
    """A server that answers on a port of 127.0.0.1."""

    port: int
    process: int

    def resident_megabytes(self) -> float:
        """The resident memory of the process, on Linux; 0 elsewhere."""
        try:
            status = Path(f"/proc/{self.process}/status").read_text(encoding="utf-8")
        except OSError:
            return 0.0
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else 0.0


@contextmanager
def started(module: str, arguments: Sequence[str]) -> Iterator[ServerProcess]:
    """Run `python -m MODULE ARGUMENTS…` until the end of the block; its first line of stderr must name its URL."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if not found:
            raise InputError(f"the server did not start: {line}{process.stderr.read()}".strip())
        yield ServerProcess(int(found[1]), process.pid)
    finally:
        process.terminate()
        process.communicate()
