"""One worker thread that computes requests together, within limits, and counts what it does."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.errors import InputError
from lightbert.serve.endpoints import Endpoint, Prepared
from lightbert.serve.metrics import Metrics
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
        # Half a batch: a short request waits for one slice, and should take at most twice as long as alone.
        self.slice = runtime.batch_tokens[0] // 2 if runtime is not None else 0
        self.is_long = 0 < self.slice < prepared.tokens and len(prepared.features) > 1
        self._outputs: list[Any] = [None] * len(prepared.features)
        # Rows of similar length share a slice, as they would share a batch.
        self._left = np.argsort(prepared.features.lengths, kind="stable") if self.is_long else np.arange(0)
        self._taken = self._left[:0]

    def take(self) -> Prepared:
        """The next slice of the rows of a long request."""
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
    the next round. A round computes all short requests, then one slice of a long one, so that nobody waits for the
    whole of a long request; long requests alternate. The caller bounds the number of requests.
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
            short, long = ([job for job in jobs if job.is_long is is_long] for is_long in (False, True))
            for key in dict.fromkeys(job.key for job in short):
                self._answer([(job, job.prepared) for job in short if job.key == key])
            if long:
                self._answer([(long[0], long[0].take())])
            jobs = [job for job in (*long[1:], *long[:1]) if not job.answers.done()]

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
        self._metrics.batches.inc()
        self._metrics.batched.inc(len(work))
        self._metrics.tokens.inc(sum(prepared.tokens for _, prepared in work))


def compute_rows(endpoint: Endpoint, requests: Sequence[Prepared]) -> list[list[Any]]:
    """Compute the rows of all requests together, batched by length; all have the same runtime."""
    parts = [request.features for request in requests]
    outputs = run(requests[0].runtime or endpoint.runtime, Features.concatenate(parts), endpoint.encoder.specials)
    answers, start = [], 0
    for request, part in zip(requests, parts, strict=True):
        answers.append(request.finish(outputs[start : start + len(part)]))
        start += len(part)
    return answers
