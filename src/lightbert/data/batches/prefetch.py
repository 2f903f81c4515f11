"""Batches prefetched by threads, in order, and values that are computed once per epoch."""

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
    """How one process gets its batches: its share of each, how many threads prefetch, and into which memory."""

    rank: int = 0
    world: int = 1
    """How many processes share a batch."""
    workers: int = 2
    """Threads that prefetch; 0 = none."""
    pin: bool = False
    """Copy batches to page-locked memory, from which a GPU copies without waiting."""

    def check_batch(self, batch: int) -> None:
        """Check that every process gets the same number of rows."""
        if batch < 1 or batch % self.world:
            raise InputError(f"batch must be a multiple of the number of processes, {self.world}, got {batch}")

    def maybe_pin(self, batch: Batch) -> Batch:
        """The batch, in the memory that was asked for."""
        return batch.pin() if self.pin else batch


SINGLE_PROCESS = LoaderSettings()


def prefetch(
    at: Callable[[int], Batch],
    start: int,
    stop: int | None,
    workers: int,
    prepare: Callable[[int], None] = lambda step: None,
) -> Generator[Batch]:
    """Yield `at(start)`, `at(start + 1)` and so on, a few of them prefetched; close the iterator to stop the workers.

    `prepare` is called for each step by a worker, without waiting for it. Workers are threads: a batch takes a handful
    of numpy calls that release the interpreter lock, so that processes, with their copies, start-up and orphans, would
    only cost more.
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
    """The value of `make` for each epoch, computed by the first thread that asks; the last two are kept."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make
        self._made: dict[int, Future[T]] = {}
        self._lock = threading.Lock()

    def __getitem__(self, epoch: int) -> T:
        with self._lock:
            known = self._made.get(epoch)
            if known is None:
                promise = self._made[epoch] = Future()
                while len(self._made) > 2:
                    del self._made[next(iter(self._made))]
        if known is not None:
            return known.result()
        try:
            promise.set_result(self._make(epoch))
        except BaseException as error:
            promise.set_exception(error)
        return promise.result()
