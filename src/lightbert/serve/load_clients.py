"""Concurrent HTTP clients on the loopback address, light enough to share two cores with the server."""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lightbert.errors import InputError


@dataclass
class Load:
    """What a number of clients measured."""

    clients: int
    seconds: float = 0.0
    texts: int = 0
    statuses: "Counter[int]" = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    """Seconds per request with status 200."""
    lost: int = 0
    """Requests without an answer: the connection was closed."""
    wrong: int = 0
    """Answers with status 200 that don't have one item for each text of their request, in order."""

    @property
    def requests_per_second(self) -> float:
        """Successful requests per second."""
        return self.statuses[200] / self.seconds

    @property
    def texts_per_second(self) -> float:
        """Texts of successful requests per second."""
        return self.texts / self.seconds

    def percentile(self, share: float) -> float:
        """Milliseconds within which this percentage of the requests was answered."""
        return float(np.percentile(self.times, share)) * 1000 if self.times else float("nan")


def run_clients(
    port: int,
    path: str,
    requests: Sequence[Sequence[str]],
    clients: int,
    seconds: float,
    *,
    rate: float = 0.0,
    watch: Callable[[Load], None] = lambda load: None,
) -> Load:
    """Let clients send requests, lists of texts, for a time; each client has one connection.

    rate: requests per second of all clients together, at regular times, whether earlier ones are answered or not as
        long as a client is free; 0: each client sends its next request as soon as it has its answer.
    watch: called once a second.
    """
    return asyncio.run(_run(_Target(port, path, requests, rate), Load(clients), seconds, watch))


class _Target:
    """The server, and the requests with the times at which they are sent."""

    def __init__(self, port: int, path: str, requests: Sequence[Sequence[str]], rate: float) -> None:
        self.port, self.rate = port, rate
        self._requests = [(texts, json.dumps({"texts": list(texts)}).encode()) for texts in requests]
        self._head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        self._number = 0
        self.start = time.perf_counter()

    def take(self) -> tuple[Sequence[str], bytes, float]:
        """The next request: its texts, its bytes, and the time at which it is sent."""
        texts, body = self._requests[self._number % len(self._requests)]
        at = self.start + self._number / self.rate if self.rate else 0.0
        self._number += 1
        return texts, f"{self._head}{len(body)}\r\n\r\n".encode() + body, at


async def _run(target: _Target, load: Load, seconds: float, watch: Callable[[Load], None]) -> Load:
    watcher = asyncio.create_task(_watch(load, watch))
    until = target.start + seconds
    await asyncio.gather(*(_client(target, load, until) for _ in range(load.clients)))
    load.seconds = time.perf_counter() - target.start
    watcher.cancel()
    return load


async def _watch(load: Load, watch: Callable[[Load], None]) -> None:
    while True:
        await asyncio.sleep(1.0)
        watch(load)


async def _client(target: _Target, load: Load, until: float) -> None:
    while time.perf_counter() < until:
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        try:
            await _requests(target, load, until, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            load.lost += 1
        finally:
            writer.close()


async def _requests(
    target: _Target, load: Load, until: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Send requests on one connection, one after another."""
    while time.perf_counter() < until:
        texts, request, at = target.take()
        if (wait := min(at, until) - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        start = time.perf_counter()
        writer.write(request)
        status, answer = await _response(reader)
        load.statuses[status] += 1
        if status == 200:
            load.times.append(time.perf_counter() - start)
            load.texts += len(texts)
            load.wrong += not _answers(answer, texts)
        elif not target.rate:
            # A patient client waits before it tries again.
            await asyncio.sleep(0.01)


def _answers(answer: bytes, texts: Sequence[str]) -> bool:
    """Whether an answer has one item per text, in order; vectors don't repeat their texts."""
    [items] = [value for value in json.loads(answer).values() if isinstance(value, list)]
    given = [item["text"] if isinstance(item, dict) else text for item, text in zip(items, texts, strict=False)]
    return len(items) == len(texts) and given == list(texts)


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
    length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
    return int(lines[0].split()[1]), await reader.readexactly(length)


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
