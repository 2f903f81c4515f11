"""A priority queue of work for a few threads."""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

Work = TypeVar("Work")


class WorkQueue(Generic[Work]):
    """Work for up to `jobs` threads, the lowest order first. Call `add` and `run` from one thread; it calls `ended`."""

    def __init__(self, jobs: int, should_stop: Callable[[], bool]) -> None:
        self._jobs = jobs
        self._should_stop = should_stop
        self._failed = False
        self._waiting: list[tuple[tuple[int, ...], int, Work]] = []
        self._numbers = count()

    def add(self, order: tuple[int, ...], work: Work) -> None:
        """Add work; among equal orders, what was added first starts first."""
        heappush(self._waiting, (order, next(self._numbers), work))

    def is_over(self) -> bool:
        """Whether `should_stop` or an exception has ended the run: no more work starts, and running work should end."""
        return self._failed or self._should_stop()

    def run(self, function: Callable[[Work], bool], ended: Callable[[Work, bool], None]) -> None:
        """Call `function` in a thread for all work until it is over, and `ended` with each result; it may add more.

        An exception of either is raised once the functions that are running have returned.
        """
        running: dict[Future[bool], Work] = {}
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                while True:
                    while self._waiting and len(running) < self._jobs and not self.is_over():
                        _, _, work = heappop(self._waiting)
                        running[pool.submit(function, work)] = work
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        ended(running.pop(future), future.result())
            except BaseException:
                self._failed = True
                raise
