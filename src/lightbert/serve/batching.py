"""One worker thread that computes requests together, within limits, and counts what it does."""

import queue
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.errors import InputError
from lightbert.serve.endpoints import Endpoint, Prepared
from lightbert.tasks.predict.runtime import run


@dataclass(frozen=True)
class Limits:
    """What one request may contain, how many may wait, and for how long."""

    body: int = 1 << 20
    """Bytes per request."""
    texts: int = 256
    """Texts per request."""
    tokens: int = 32768
    """Tokens per request, after truncation and including the windows of long texts."""
    queue: int = 256
    """Requests that are accepted but not answered yet; more are answered with 429."""
    connections: int = 1024
    """Open connections; more are closed with 503."""
    body_seconds: float = 10.0
    """The time in which a client must send the body of a request."""
    timeout: float = 60.0
    """The time from the acceptance of a request to its answer, also when the server stops."""
    window: float = 0.002
    """How many seconds a request waits for others to share its batch."""
    round_tokens: int = 16384
    """Tokens that the worker collects before it computes."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0 and name != "window":
                raise InputError(f"{name.replace('_', '-')} must be > 0, got {value}")


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_INFINITE = float("inf")
_HELP = {
    "requests_total": ("counter", "Answered requests by endpoint and status."),
    "texts_total": ("counter", "Texts of successful requests by endpoint."),
    "tokens_total": ("counter", "Computed tokens."),
    "batches_total": ("counter", "Rounds of the worker; a round computes the requests that arrived together."),
    "batched_requests_total": ("counter", "Requests in these rounds."),
    "waiting_requests": ("gauge", "Requests that are accepted but not answered yet."),
    "request_seconds": ("histogram", "Time from the request to its answer."),
}


class Metrics:
    """Counters and a histogram of times; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Counter[tuple[str, str]] = Counter()
        self._times: Counter[float] = Counter()
        self._seconds = 0.0

    def add(self, name: str, amount: int = 1, **labels: object) -> None:
        """Add to a counter or a gauge."""
        text = ",".join(f'{key}="{value}"' for key, value in labels.items())
        with self._lock:
            self._values[name, f"{{{text}}}" if text else ""] += amount

    def observe(self, seconds: float) -> None:
        """Count the time of one request."""
        place = bisect_left(_SECONDS, seconds)
        with self._lock:
            self._times[_SECONDS[place] if place < len(_SECONDS) else _INFINITE] += 1
            self._seconds += seconds

    def total(self, name: str) -> int:
        """The sum of a counter over all labels."""
        with self._lock:
            return sum(value for (metric, _), value in self._values.items() if metric == name)

    def __str__(self) -> str:
        with self._lock:
            values, times, seconds = sorted(self._values.items()), dict(self._times), self._seconds
        lines = []
        for name, (kind, purpose) in _HELP.items():
            lines += [f"# HELP lightbert_{name} {purpose}", f"# TYPE lightbert_{name} {kind}"]
            if kind == "histogram":
                for bound in (*_SECONDS, _INFINITE):
                    count = sum(times.get(smaller, 0) for smaller in (*_SECONDS, _INFINITE) if smaller <= bound)
                    label = "+Inf" if bound == _INFINITE else bound
                    lines.append(f'lightbert_{name}_bucket{{le="{label}"}} {count}')
                lines += [f"lightbert_{name}_sum {seconds:.6f}", f"lightbert_{name}_count {sum(times.values())}"]
                continue
            counts = {labels: value for (metric, labels), value in values if metric == name}
            # A counter with labels appears with its first value.
            counts = counts or ({} if name in ("requests_total", "texts_total") else {"": 0})
            lines += [f"lightbert_{name}{labels} {value}" for labels, value in counts.items()]
        return "\n".join(lines) + "\n"


Compute = Callable[[Endpoint, Sequence[Prepared]], list[list[Any]]]
"""Computes requests of one endpoint and runtime: the answers of each."""


class _Job:
    """A request in the queue, and the outputs of its rows so far; long requests are computed in slices."""

    def __init__(self, endpoint: Endpoint, prepared: Prepared) -> None:
        self.endpoint, self.prepared = endpoint, prepared
        self.answers: Future[list[Any]] = Future()
        self.arrived = time.monotonic()
        runtime = prepared.runtime or endpoint.runtime
        self.key = (endpoint.name, id(runtime))
        """Jobs with the same endpoint and runtime are computed together."""
        self.slice = runtime.batch_tokens[0] if runtime is not None else 0
        self.is_long = 0 < self.slice < prepared.tokens and len(prepared.features) > 1
        self._outputs: list[Any] = [None] * len(prepared.features)
        # Rows of similar length share a slice, as they would share a batch.
        self._left = np.argsort(prepared.features.lengths, kind="stable") if self.is_long else np.arange(0)
        self._taken = self._left[:0]

    def take(self) -> Prepared:
        """The next slice of rows; the whole request if it is short."""
        if not self.is_long:
            return self.prepared
        features = self.prepared.features
        count = max(1, int(np.searchsorted(np.cumsum(features.lengths[self._left]), self.slice, side="right")))
        self._taken, self._left = self._left[:count], self._left[count:]
        return replace(self.prepared, features=_rows_of(features, self._taken), finish=list)

    def put(self, answers: list[Any]) -> None:
        """Keep the outputs of the slice that was taken last; those of the last slice complete the answer."""
        if not self.is_long:
            self.answers.set_result(answers)
            return
        for row, output in zip(self._taken.tolist(), answers, strict=True):
            self._outputs[row] = output
        if not len(self._left):
            self.answers.set_result(self.prepared.finish(self._outputs))


def _rows_of(features: Features, rows: NDArray[np.int64]) -> Features:
    starts, ends = features.starts[rows].tolist(), features.starts[rows + 1].tolist()
    tokens = [features.tokens[start:end] for start, end in zip(starts, ends, strict=True)]
    return Features(
        tokens=np.concatenate(tokens),
        starts=np.concatenate([[0], np.cumsum(features.lengths[rows])]).astype(np.int64),
        seconds=features.seconds[rows],
        sources=np.arange(len(rows)),
    )


class Batcher:
    """Computes prepared requests in a thread of its own, several at a time, in order of arrival.

    A request waits at most ``limits.window`` seconds for others; while the worker computes, requests queue up and share
    the next round. A round computes all short requests and one slice of the oldest long one, so that nobody waits for
    the whole of a long request. The caller bounds the number of requests.
    """

    def __init__(self, limits: Limits, metrics: Metrics, compute: Compute) -> None:
        self._limits, self._metrics, self._compute = limits, metrics, compute
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._work, name="lightbert-serve", daemon=True)
        self._worker.start()

    def submit(self, endpoint: Endpoint, prepared: Prepared) -> "Future[list[Any]]":
        """Queue a request; a future that is cancelled before its turn is not computed."""
        job = _Job(endpoint, prepared)
        self._jobs.put(job)
        return job.answers

    def close(self) -> None:
        """Compute what is queued, then stop the worker."""
        self._jobs.put(None)
        self._worker.join()

    def _work(self) -> None:
        jobs: list[_Job] = []
        open_ = True
        while open_ or jobs:
            if open_:
                arrived, open_ = self._collect(wait=not jobs)
                jobs += [job for job in arrived if job.answers.set_running_or_notify_cancel()]
            long = next((job for job in jobs if job.is_long), None)
            work = [job for job in jobs if not job.is_long or job is long]
            for key in dict.fromkeys(job.key for job in work):
                self._answer([(job, job.take()) for job in work if job.key == key])
            jobs = [job for job in jobs if not job.answers.done()]

    def _collect(self, *, wait: bool) -> tuple[list[_Job], bool]:
        """The jobs that arrived, and whether more can follow; wait: until there is one."""
        jobs: list[_Job] = []
        tokens, until = 0, 0.0
        while not tokens or tokens < self._limits.round_tokens:
            try:
                if wait and not jobs:
                    job = self._jobs.get()
                else:
                    seconds = until - time.monotonic()
                    job = self._jobs.get(timeout=seconds) if seconds > 0 else self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return jobs, False
            until = until or (job.arrived + self._limits.window if wait else 0.0)
            jobs.append(job)
            tokens += max(1, job.prepared.tokens)
        return jobs, True

    def _answer(self, work: Sequence[tuple[_Job, Prepared]]) -> None:
        try:
            answers = self._compute(work[0][0].endpoint, [prepared for _, prepared in work])
            for (job, _), answer in zip(work, answers, strict=True):
                job.put(answer)
        # Whatever happens to one request, the worker answers the others.
        except Exception as error:
            waiting = [(job, prepared) for job, prepared in work if not job.answers.done()]
            if len(waiting) == 1:
                waiting[0][0].answers.set_exception(error)
                return
            for job, prepared in waiting:
                self._answer([(job, prepared)])
            return
        self._metrics.add("batches_total")
        self._metrics.add("batched_requests_total", len(work))
        self._metrics.add("tokens_total", sum(prepared.tokens for _, prepared in work))


def compute_rows(endpoint: Endpoint, requests: Sequence[Prepared]) -> list[list[Any]]:
    """Compute the rows of all requests together, batched by length; all have the same runtime."""
    parts = [request.features for request in requests]
    outputs = run(requests[0].runtime or endpoint.runtime, Features.concatenate(parts), endpoint.specials)
    answers, start = [], 0
    for request, part in zip(requests, parts, strict=True):
        answers.append(request.finish(outputs[start : start + len(part)]))
        start += len(part)
    return answers
