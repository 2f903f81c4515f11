"""One worker thread that computes requests together: those that arrive within milliseconds share batches by length."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from lightbert.data.examples.features import Features
from lightbert.serve.endpoints.endpoint import Endpoint, Prepared
from lightbert.serve.limits import Limits
from lightbert.serve.metrics import Metrics
from lightbert.tasks.predict.forward import run

Compute = Callable[[Endpoint, Sequence[Prepared]], list[list[Any]]]
"""Computes requests of one endpoint and runtime: the answers of each."""


@dataclass(frozen=True)
class _Job:
    endpoint: Endpoint
    prepared: Prepared
    answers: "Future[list[Any]]" = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> tuple[str, int]:
        """Jobs with the same endpoint and runtime are computed together."""
        return self.endpoint.name, id(self.prepared.runtime or self.endpoint.runtime)


class Batcher:
    """Computes prepared requests in a thread of its own, several at a time, in order of arrival.

    A request waits at most ``limits.window`` seconds for others; while the worker computes, requests queue up and share
    the next round. The caller bounds the number of requests.
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
        open_ = True
        while open_:
            jobs, open_ = self._collect()
            waiting = [job for job in jobs if job.answers.set_running_or_notify_cancel()]
            for key in dict.fromkeys(job.key for job in waiting):
                self._answer([job for job in waiting if job.key == key])

    def _collect(self) -> tuple[list[_Job], bool]:
        """The jobs of the next round, and whether more can follow."""
        jobs: list[_Job] = []
        tokens, until = 0, 0.0
        while not jobs or tokens < self._limits.round_tokens:
            try:
                wait = max(0.0, until - time.monotonic()) if jobs else None
                job = self._jobs.get(timeout=wait) if wait != 0.0 else self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return jobs, False
            until = until or job.arrived + self._limits.window
            jobs.append(job)
            tokens += job.prepared.tokens
        return jobs, True

    def _answer(self, jobs: Sequence[_Job]) -> None:
        try:
            answers = self._compute(jobs[0].endpoint, [job.prepared for job in jobs])
        # Whatever happens to one request, the worker answers the others.
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].answers.set_exception(error)
                return
            for job in jobs:
                self._answer([job])
            return
        self._metrics.add("batches_total")
        self._metrics.add("batched_requests_total", len(jobs))
        self._metrics.add("tokens_total", sum(job.prepared.tokens for job in jobs))
        for job, each in zip(jobs, answers, strict=True):
            job.answers.set_result(each)


def compute_rows(endpoint: Endpoint, requests: Sequence[Prepared]) -> list[list[Any]]:
    """Compute the rows of all requests together, batched by length; all have the same runtime."""
    parts = [request.features for request in requests]
    outputs = run(requests[0].runtime or endpoint.runtime, Features.concatenate(parts), endpoint.specials)
    answers, start = [], 0
    for request, part in zip(requests, parts, strict=True):
        answers.append(request.finish(outputs[start : start + len(part)]))
        start += len(part)
    return answers
