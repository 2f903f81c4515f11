"""`lightbert serve` under load, against a bare loop of `model.predict` and transformers' pipeline.

The pipeline answers behind the same HTTP server. All run on the same cores, alternately, with the same requests: texts
of 4 to 60 random words. The servers are processes on the loopback address; the clients share the cores with them. The
grouped loop predicts as many requests per call as there are clients, which is the most that a server could do.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from lightbert.bench.http_clients import Load, run_clients
from lightbert.bench.server_process import ServerProcess, started
from lightbert.bench.serving_models import ServedModel, served_model
from lightbert.bench.serving_report import (
    GROUPED_LOOP,
    GROUPED_PIPELINE,
    LOOP,
    PIPELINE,
    SERVE,
    Overload,
    Rate,
    ServingReport,
)
from lightbert.errors import InputError
from lightbert.progress import progress

_WORDS = (
    "train",
    "was",
    "late",
    "again",
    "and",
    "we",
    "waited",
    "an",
    "hour",
    "at",
    "the",
    "station",
    "then",
    "walked",
)
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
    choose = random.Random(seed)
    return [[" ".join(choose.choices(_WORDS, k=choose.randint(4, 60))) for _ in range(texts)] for _ in range(count)]


def measure(settings: Settings) -> ServingReport:
    """Run the loops, the server and the pipelines alternately; then the server at twice its capacity."""
    requests = make_requests(settings.texts)
    with tempfile.TemporaryDirectory() as where, ExitStack() as stack:
        model = served_model(settings.model, Path(where), [text for request in requests for text in request])
        path, work = _work(model.ours, settings.threads)
        systems: dict[str, Callable[[int], Load]] = {
            LOOP: lambda clients: loop(work, requests, 1, settings.seconds),
            GROUPED_LOOP: lambda clients: loop(work, requests, clients, settings.seconds),
        }
        for name, server in _servers(model, settings.threads, stack):
            systems[name] = _clients(server, path, requests, settings.seconds)
        rates = _rates(systems, settings)
        capacity = max(each.requests_per_second for each in rates if each.system == SERVE)
        overload = _overload(model.ours, path, requests, capacity, settings) if settings.overload_minutes else None
    return ServingReport(
        settings.model, settings.texts, settings.threads, settings.rounds, rates, model.reason, overload
    )


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


def _servers(model: ServedModel, threads: int, stack: ExitStack) -> Iterator[tuple[str, ServerProcess]]:
    yield SERVE, stack.enter_context(_serving(model.ours, threads))
    if model.theirs:
        arguments = [str(model.theirs), "--threads", str(threads)]
        module = "lightbert.bench.pipeline_server"
        yield PIPELINE, stack.enter_context(started(module, arguments))
        yield GROUPED_PIPELINE, stack.enter_context(started(module, [*arguments, "--together"]))


@contextmanager
def _serving(model: str, threads: int, *options: str) -> Iterator[ServerProcess]:
    arguments = ["serve", model, "--port", "0", "--device", "cpu", "--threads", str(threads), *options]
    with started("lightbert", arguments) as server:
        yield server


def _clients(server: ServerProcess, path: str, requests: Sequence[list[str]], seconds: float) -> Callable[[int], Load]:
    def run(clients: int) -> Load:
        load = run_clients(server.port, path, requests, clients, seconds)
        if load.wrong or load.lost or set(load.statuses) != {200}:
            raise InputError(
                f"every request must be answered with 200, got {dict(load.statuses)}, {load.lost} lost and "
                f"{load.wrong} wrong; use fewer --clients"
            )
        return load

    return run


def _rates(systems: dict[str, Callable[[int], Load]], settings: Settings) -> tuple[Rate, ...]:
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
            rates += [_rate(name, clients, each) for name, each in loads.items()]
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
        megabytes=tuple(max(part) for part in _tenths(memory)),
    )


def _tenths(values: Sequence[float]) -> list[Sequence[float]]:
    """Split values into ten parts, or one part per value."""
    count = min(10, len(values))
    bounds = [round(part * len(values) / count) for part in range(count + 1)]
    return [values[start:end] for start, end in pairwise(bounds)]


def _work(name: str, threads: int) -> tuple[str, Callable[[list[str]], Any]]:
    """The path to measure, and the same work without a server."""
    from lightbert.serve.endpoints import endpoints_of
    from lightbert.serve.threads import with_threads
    from lightbert.tasks.predict.loading import load

    model = with_threads(load(name), threads)
    predict = endpoints_of(model, device="cpu").get("predict")
    if predict is None:
        return "/v1/embed", model.encode
    if not isinstance(predict.example, str):
        raise InputError(
            "the model must take single texts, got one for pairs of texts or questions; choose another one"
        )
    return "/v1/predict", model.predict
