"""`lightbert serve` under load, against a bare loop of `model.predict`.

All run on the same cores, alternately, with the same requests: texts of 4 to 60 random words. The server is a process
on the loopback address; its clients are light enough to share the cores with it. The grouped loop predicts as many
requests per call as there are clients, which is the most that a server could do.
"""

import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lightbert.data.tokenizer import train
from lightbert.errors import InputError
from lightbert.models import PRESETS, build, folder
from lightbert.progress import progress
from lightbert.tasks.kinds.classify import Classify

if TYPE_CHECKING:
    from rich.console import RenderableType


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
    # Without a rate, a client waits before it tries again.
    work = _run_all(_Requests(path, requests, rate), port, Load(clients), seconds, patient=not rate, watch=watch)
    return asyncio.run(work)


class _Requests:
    """The bytes of the requests, again and again, with the times at which they are sent."""

    def __init__(self, path: str, requests: Sequence[Sequence[str]], rate: float) -> None:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        bodies = [(texts, json.dumps({"texts": list(texts)}).encode()) for texts in requests]
        self._requests = [(texts, f"{head}{len(body)}\r\n\r\n".encode() + body) for texts, body in bodies]
        self._rate, self._number, self.start = rate, 0, time.perf_counter()

    def take(self) -> tuple[Sequence[str], bytes, float]:
        """The next request: its texts, its bytes, and the time at which it is sent."""
        at = self.start + self._number / self._rate if self._rate else 0.0
        self._number += 1
        return *self._requests[(self._number - 1) % len(self._requests)], at


async def _run_all(
    requests: _Requests, port: int, load: Load, seconds: float, *, patient: bool, watch: Callable[[Load], None]
) -> Load:
    async def watching() -> None:
        while True:
            await asyncio.sleep(1.0)
            watch(load)

    watcher, until = asyncio.create_task(watching()), requests.start + seconds
    await asyncio.gather(*(_client(requests, port, load, until, patient=patient) for _ in range(load.clients)))
    load.seconds = time.perf_counter() - requests.start
    watcher.cancel()
    return load


async def _client(requests: _Requests, port: int, load: Load, until: float, *, patient: bool) -> None:
    """Send requests on one connection, one after another; on another one if it is closed."""
    while time.perf_counter() < until:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while time.perf_counter() < until:
                texts, request, at = requests.take()
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
                elif patient:
                    await asyncio.sleep(0.01)
        except (asyncio.IncompleteReadError, ConnectionError):
            load.lost += 1
        finally:
            writer.close()


def _answers(answer: bytes, texts: Sequence[str]) -> bool:
    """Whether an answer has one item per text, in order; vectors don't repeat their texts."""
    [items] = [value for value in json.loads(answer).values() if isinstance(value, list)]
    answered = [item["text"] if isinstance(item, dict) else text for item, text in zip(items, texts, strict=False)]
    return len(items) == len(texts) and answered == list(texts)


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
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(resident[1]) / 1024 if resident else 0.0


@contextmanager
def started(module: str, arguments: Sequence[str]) -> Iterator[ServerProcess]:
    """Run `python -m MODULE ARGUMENTS…` until the end of the block; its first line of stderr must name its URL."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        url = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if not url:
            raise InputError(f"the server did not start: {line}{process.stderr.read()}".strip())
        yield ServerProcess(int(url[1]), process.pid)
    finally:
        process.terminate()
        process.communicate()


_WORDS = "train was late again and we waited an hour at the station then walked"
SERVE, LOOP, GROUPED_LOOP = "lightbert serve", "model.predict, one request per call", "model.predict, grouped requests"
Run = Callable[[int], Load]
"""Number of clients -> what they measured."""
AddServers = Callable[[str], Mapping[str, AbstractContextManager[ServerProcess]]]
"""The model -> other servers to measure, by name."""

_REQUESTS = 512
_QUEUE = 32
# Twice the capacity: while a queue is answered, twice as many requests arrive; each needs a free connection.
_CONNECTIONS = 4 * _QUEUE
_LONGEST_MINUTES = 60.0
_WARM_SECONDS = 1.0


@dataclass(frozen=True)
class Settings:
    """What is measured, and for how long."""

    model: str = "convbert-small"
    """A model for single texts, or a preset, which gets random weights."""
    clients: tuple[int, ...] = (1, 8, 32)
    seconds: float = 3.0
    """The time of each measurement."""
    texts: int = 1
    """Texts per request."""
    threads: int = 1
    rounds: int = 3
    overload_minutes: float = 0.25

    def __post_init__(self) -> None:
        if not self.clients or min(self.clients) < 1:
            raise InputError(f"clients must be >= 1, got {', '.join(map(str, self.clients)) or 'none'}")
        for name in ("texts", "threads", "rounds"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not 0 < self.seconds <= 60 * _LONGEST_MINUTES:
            raise InputError(f"seconds must be in (0, {60 * _LONGEST_MINUTES:g}], got {self.seconds:g}")
        if not 0 <= self.overload_minutes <= _LONGEST_MINUTES:
            raise InputError(f"overload-minutes must be in [0, {_LONGEST_MINUTES:g}], got {self.overload_minutes:g}")


def make_requests(texts: int, count: int = _REQUESTS, seed: int = 0) -> list[list[str]]:
    """Requests of random words, the same in every run."""
    choose, words = random.Random(seed), _WORDS.split()
    return [[" ".join(choose.choices(words, k=choose.randint(4, 60))) for _ in range(texts)] for _ in range(count)]


@dataclass(frozen=True)
class Rate:
    """One system with a number of clients; the grouped loop computes as many requests per call."""

    system: str
    clients: int
    requests_per_second: float
    texts_per_second: float
    p50: float
    p99: float


@dataclass(frozen=True)
class Overload:
    """The server at twice its capacity: every request is answered or rejected with 429."""

    seconds: float
    capacity: float
    """Requests per second before."""
    offered: float
    """Requests per second that the clients sent."""
    answered: int
    rejected: int
    lost: int
    wrong: int
    other: dict[int, int]
    """Other statuses."""
    p99: float
    megabytes: tuple[float, ...]
    """Resident memory of the server in each tenth of the time."""

    def sentence(self) -> str:
        """The result in words."""
        others = "".join(f", {count:,} with status {status}" for status, count in self.other.items())
        first, middle, last = (self.megabytes[place] for place in (0, len(self.megabytes) // 2, -1))
        return (
            f"{self.seconds:.0f} s at {self.offered:,.0f} requests/s ({self.offered / self.capacity:.1f} × the "
            f"capacity): {self.answered:,} answered, {self.rejected:,} got 429, {self.lost} lost, "
            f"{self.wrong} wrong{others}; p99 {self.p99:,.0f} ms; memory {first:,.0f} MiB in the first tenth of the "
            f"time, {middle:,.0f} in the middle, {last:,.0f} in the last"
        )


@dataclass(frozen=True)
class ServingReport:
    """All measurements of one load test."""

    ratios: ClassVar[Mapping[str, tuple[str, ...]]] = {"to_loop": (LOOP,), "to_grouped_loop": (GROUPED_LOOP,)}
    """Metric -> the systems, of which the fastest counts."""

    model: str
    texts: int
    threads: int
    rounds: int
    rates: tuple[Rate, ...]
    overload: Overload | None

    def metrics(self) -> dict[str, float]:
        """The rate of the server with each number of clients, and relative to the other systems."""
        metrics = {}
        for rate in self._of(SERVE):
            n = rate.clients
            metrics[f"requests_per_second_{n}"] = rate.requests_per_second
            metrics[f"p50_ms_{n}"], metrics[f"p99_ms_{n}"] = rate.p50, rate.p99
            for name, systems in self.ratios.items():
                others = [row.texts_per_second for row in self.rates if row.clients == n and row.system in systems]
                if others:
                    metrics[f"{name}_{n}"] = rate.texts_per_second / max(others)
        return metrics

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"metrics": self.metrics(), **asdict(self)}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        table = Table("clients", "system", "requests/s", "texts/s", "p50 ms", "p99 ms", "serve relative to it")
        table.title = (
            f"{self.model}, {self.texts} texts per request, {self.threads} threads, median of {self.rounds} rounds"
        )
        served = {rate.clients: rate.texts_per_second for rate in self._of(SERVE)}
        for row in self.rates:
            rates = (f"{value:,.1f}" for value in (row.requests_per_second, row.texts_per_second))
            ratio = "" if row.system == SERVE else f"{served[row.clients] / row.texts_per_second:.2f} ×"
            table.add_row(str(row.clients), row.system, *rates, f"{row.p50:.1f}", f"{row.p99:.1f}", ratio)
        return Group(table, *([f"overload: {self.overload.sentence()}"] if self.overload else []))

    def _of(self, system: str) -> Iterator[Rate]:
        return (rate for rate in self.rates if rate.system == system)


def measure(settings: Settings, add_servers: AddServers | None = None) -> ServingReport:
    """Run the loops and the servers alternately; then `lightbert serve` at twice its capacity."""
    requests = make_requests(settings.texts)
    with tempfile.TemporaryDirectory() as where, ExitStack() as stack:
        texts = [text for request in requests for text in request]
        model = _classifier(settings.model, Path(where), texts) if settings.model in PRESETS else settings.model
        path, work = _work(model, settings.threads)
        servers = {SERVE: stack.enter_context(_serving(model, settings.threads))}
        if add_servers is not None:
            servers |= {name: stack.enter_context(server) for name, server in add_servers(model).items()}
        systems: dict[str, Run] = {
            LOOP: lambda clients: loop(work, requests, 1, settings.seconds),
            GROUPED_LOOP: lambda clients: loop(work, requests, clients, settings.seconds),
            **{name: _clients(server, path, requests, settings.seconds) for name, server in servers.items()},
        }
        rates = _rates(systems, settings)
        capacity = max(rate.requests_per_second for rate in rates if rate.system == SERVE)
        overload = _overload(model, path, requests, capacity, settings) if settings.overload_minutes else None
    return ServingReport(settings.model, settings.texts, settings.threads, settings.rounds, rates, overload)


def loop(work: Callable[[list[str]], Any], requests: Sequence[list[str]], group: int, seconds: float) -> Load:
    """Compute `group` requests per call, one call after another, for a time; the times are those of calls."""
    groups = [requests[start : start + group] for start in range(0, len(requests), group)]
    load, calls, start = Load(group), 0, time.perf_counter()
    while (load.seconds or 0.0) < seconds:
        chosen, before = groups[calls % len(groups)], time.perf_counter()
        work([text for request in chosen for text in request])
        load.times.append(time.perf_counter() - before)
        load.texts += sum(map(len, chosen))
        load.statuses[200] += len(chosen)
        load.seconds = time.perf_counter() - start
        calls += 1
    return load


def _serving(model: str, threads: int, *options: str) -> AbstractContextManager[ServerProcess]:
    return started("lightbert", ["serve", model, "--port", "0", "--device", "cpu", "--threads", str(threads), *options])


def _clients(server: ServerProcess, path: str, requests: Sequence[list[str]], seconds: float) -> Run:
    def run(clients: int) -> Load:
        load = run_clients(server.port, path, requests, clients, seconds)
        if load.wrong or load.lost or set(load.statuses) != {200}:
            raise InputError(
                f"every request must be answered with 200, got {dict(load.statuses)}, {load.lost} lost and "
                f"{load.wrong} wrong; use fewer --clients"
            )
        return load

    return run


def _rates(systems: dict[str, Run], settings: Settings) -> tuple[Rate, ...]:
    for run in systems.values():
        run(1)
    rates = []
    with progress("serving", total=len(settings.clients) * settings.rounds * len(systems), unit="runs") as bar:
        for clients in settings.clients:
            loads: dict[str, list[Load]] = {name: [] for name in systems}
            for _ in range(settings.rounds):
                for name, run in systems.items():
                    loads[name].append(run(clients))
                    bar.advance()
            rates += [_rate(name, clients, measured) for name, measured in loads.items()]
    return tuple(rates)


def _rate(system: str, clients: int, loads: Sequence[Load]) -> Rate:
    return Rate(
        system,
        clients,
        statistics.median(load.requests_per_second for load in loads),
        statistics.median(load.texts_per_second for load in loads),
        statistics.median(load.percentile(50) for load in loads),
        statistics.median(load.percentile(99) for load in loads),
    )


def _overload(model: str, path: str, requests: Sequence[list[str]], capacity: float, settings: Settings) -> Overload:
    seconds, memory = 60 * settings.overload_minutes, list[float]()
    with (
        _serving(model, settings.threads, "--queue", str(_QUEUE)) as server,
        progress("overload", total=round(seconds), unit="seconds") as bar,
    ):

        def watch(_: Load) -> None:
            memory.append(server.resident_megabytes())
            bar.advance()

        run_clients(server.port, path, requests, _CONNECTIONS, min(_WARM_SECONDS, seconds), rate=2 * capacity)
        memory.append(server.resident_megabytes())
        load = run_clients(server.port, path, requests, _CONNECTIONS, seconds, rate=2 * capacity, watch=watch)
        memory.append(server.resident_megabytes())
    return Overload(
        seconds=load.seconds,
        capacity=capacity,
        offered=(sum(load.statuses.values()) + load.lost) / load.seconds,
        answered=load.statuses[200],
        rejected=load.statuses[429],
        lost=load.lost,
        wrong=load.wrong,
        other={status: count for status, count in load.statuses.items() if status not in (200, 429)},
        p99=load.percentile(99),
        megabytes=tuple(float(part.max()) for part in np.array_split(memory, min(10, len(memory)))),
    )


def _work(name: str, threads: int) -> tuple[str, Callable[[list[str]], Any]]:
    """The path to measure, and the same work without a server."""
    from lightbert.serve.models import endpoints_of, with_threads
    from lightbert.tasks.predict.exported import load

    model = with_threads(load(name), threads)
    predict = endpoints_of(model, device="cpu").get("predict")
    if predict is None:
        return "/v1/embed", model.encode
    if not isinstance(predict.example, str):
        raise InputError(
            "the model must take single texts, got one for pairs of texts or questions; choose another one"
        )
    return "/v1/predict", model.predict


def _classifier(preset: str, where: Path, texts: Sequence[str]) -> str:
    """Write a classifier with random weights and a tokenizer for the texts; return its folder."""
    kind = Classify(("bad", "good"))
    tokenizer = train(texts, "wordpiece", PRESETS[preset].vocab)
    config = replace(PRESETS[preset], vocab=tokenizer.get_vocab_size())
    model = build(config, heads={kind.head: {**kind.head_settings(), "hidden": "gelu"}}, seed=0)
    model.tokenizer, model.labels = tokenizer, kind.labels
    model.task = {**kind.description(), "task": "own", "length": 128}
    folder.save(model, where)
    return str(where)
