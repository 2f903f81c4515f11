"""Batches made ahead by threads, in order, and things that are made once per epoch."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from lightbert.data.batches.batch import Batch

T = TypeVar("T")


def made_ahead(
    at: Callable[[int], Batch],
    start: int,
    stop: int | None,
    workers: int,
    foresee: Callable[[int], None] = lambda step: None,
) -> Generator[Batch]:
    """Yield `at(start)`, `at(start + 1)` and so on, a few made ahead; close the iterator to stop the workers.

    `foresee` is called for each step by a worker of its own, and nobody waits for it. Workers are threads: making a
    batch is a handful of numpy calls that let go of the interpreter, so that processes, with their copies, start-up and
    orphans, would only cost.
    """
    steps = itertools.count(start) if stop is None else iter(range(start, stop))
    if not workers:
        yield from map(at, steps)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="lightbert-loader")

    def submit(step: int) -> Future[Batch]:
        pool.submit(foresee, step)
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
    """What `make` gives for an epoch, made by the first thread that asks; the last two are kept."""

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
