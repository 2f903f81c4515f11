"""Prefetching batches with threads, in order, and values that are computed once per epoch."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from lightbert.data.batches.batch import Batch
from lightbert.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class LoaderSettings:
    """How a process loads its batches: its rank, the number of prefetching threads, and pinned memory."""

    rank: int = 0
    world: int = 1
    """The number of processes that share a batch."""
    workers: int = 2
    """The number of prefetching threads; 0 = no prefetching."""
    pin: bool = False
    """Copy batches to page-locked memory, from which copies to a GPU are asynchronous."""

    def check_batch(self, batch: int) -> None:
        """Check that every process gets the same number of rows."""
        if batch < 1 or batch % self.world:
            raise InputError(f"batch ({batch}) must be a positive multiple of the number of processes ({self.world})")

    def maybe_pin(self, batch: Batch) -> Batch:
        """Return the batch, in pinned memory if `pin` is set."""
        return batch.pin() if self.pin else batch


SINGLE_PROCESS = LoaderSettings()


def prefetch(
    at: Callable[[int], Batch],
    start: int,
    stop: int | None,
    workers: int,
    prepare: Callable[[int], None] = lambda step: None,
) -> Generator[Batch]:
    """Yield `at(start)`, `at(start + 1)` and so on, with prefetching; close the iterator to stop the workers.

    A worker calls `prepare` for each step in the background. The workers are threads, because a batch takes a few NumPy
    calls that release the interpreter lock; processes would add copies and start-up time.
    """
    steps = itertools.count(start) if stop is None else iter(range(start, stop))
    if not workers:
        yield from map(at, steps)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="lightbert-loader")

    def submit(step: int) -> Future[Batch]:
        pool.submit(prepare, step)
        return pool.submit(at, step)

    try:
        pending = deque(submit(step) for step in itertools.islice(steps, 2 * workers))
        while pending:
            ready = pending.popleft().result()
            pending.extend(submit(step) for step in itertools.islice(steps, 1))
            yield ready
    finally:
        pool.shutdown(cancel_futures=True)


class PerEpoch(Generic[T]):
    """A thread-safe cache of `make(epoch)` for the last two epochs; each value is computed once."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make
        self._futures: dict[int, Future[T]] = {}
        self._lock = threading.Lock()

    def __getitem__(self, epoch: int) -> T:
        with self._lock:
            known = self._futures.get(epoch)
            if known is None:
                promise = self._futures[epoch] = Future()
                while len(self._futures) > 2:
                    del self._futures[next(iter(self._futures))]
        if known is not None:
            return known.result()
        try:
            promise.set_result(self._make(epoch))
        except BaseException as error:
            promise.set_exception(error)
        return promise.result()
