"""Concurrent HTTP clients on the loopback address, light enough to share two cores with the server."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Load:
    """What a number of clients measured."""

    clients: int
    seconds: float = 0.0
    texts: int = 0
    statuses: "Counter[int]" = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    """Seconds per request with status 200."""
    wrong: int = 0
    """Answers with status 200 that don't have one item per text."""

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


def run_clients(port: int, path: str, requests: Sequence[Sequence[str]], clients: int, seconds: float) -> Load:
    """Let clients send requests one after another for a time; each client has one connection.

    requests: lists of texts. A client that gets another status than 200 waits 10 ms, as a patient one would.
    """
    return asyncio.run(_run(port, path, requests, Load(clients), seconds))


async def _run(port: int, path: str, requests: Sequence[Sequence[str]], load: Load, seconds: float) -> Load:
    start = time.perf_counter()
    bodies = [(len(texts), json.dumps({"texts": list(texts)}).encode()) for texts in requests]
    clients = (_client(port, path, bodies, place, load, start + seconds) for place in range(load.clients))
    await asyncio.gather(*clients)
    load.seconds = time.perf_counter() - start
    return load


async def _client(
    port: int, path: str, requests: Sequence[tuple[int, bytes]], place: int, load: Load, until: float
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    at = place
    while time.perf_counter() < until:
        count, body = requests[at % len(requests)]
        at += load.clients
        start = time.perf_counter()
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        status, answer = await _response(reader)
        load.statuses[status] += 1
        if status != 200:
            await asyncio.sleep(0.01)
            continue
        load.times.append(time.perf_counter() - start)
        load.texts += count
        [items] = [value for value in json.loads(answer).values() if isinstance(value, list)]
        load.wrong += len(items) != count
    writer.close()
    await writer.wait_closed()


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
    length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
    return int(lines[0].split()[1]), await reader.readexactly(length)
