"""Calls a function in several processes, in order; workers that die end the call with a sentence.

The workers import what they need themselves, ignore Ctrl-C, end with the main process, and print nothing: what a worker
without memory writes to standard error is not a sentence.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from lightbert import memory
from lightbert.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")

# Enough to keep the workers busy, few enough to keep memory small.
_ITEMS_PER_WORKER = 3
_SECONDS_BETWEEN_LOOKS = 5.0
# One heap for all threads, and no threads for linear algebra, save address space.
_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}


def map_in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    start: Callable[..., object] = bool,
    arguments: tuple[Any, ...] = (),
) -> Iterator[Result]:
    """Yield the result of each item, in the order of the items for any number of workers.

    function, start: functions of a module; every worker calls `start(*arguments)` once, before the first item.
    """
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start, (start, arguments))
    pending: deque[Future[Result]] = deque()
    try:
        with _silent_manager(pool):
            for item in items:
                pending.append(_submit(pool, function, item))
                if len(pending) >= _ITEMS_PER_WORKER * workers:
                    yield _next(pending, pool)
            while pending:
                yield _next(pending, pool)
    except (BrokenProcessPool, MemoryError) as error:
        limit = memory.address_space_limit()
        more = f", or with a higher `ulimit -v` than {limit // 1024:,}" if limit is not None else ""
        raise InputError(
            "a worker process died, perhaps because memory ran out; run the same command again with fewer --workers"
            f"{more}, finished shards are kept"
        ) from error
    finally:
        _shut_down(pool)


@contextmanager
def _silent_manager(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Don't print the traceback of the thread that serves the processes: its end becomes a sentence."""
    before = threading.excepthook

    def report(failure: threading.ExceptHookArgs) -> None:
        if failure.thread is None or failure.thread is not getattr(pool, "_executor_manager_thread", None):
            before(failure)

    threading.excepthook = report
    try:
        yield
    finally:
        threading.excepthook = before


def _submit(pool: ProcessPoolExecutor, function: Callable[[Item], Result], item: Item) -> "Future[Result]":
    try:
        with _environment_of_workers():
            return pool.submit(function, item)
    except (RuntimeError, OSError) as error:
        # Without memory, neither a process nor the thread that serves the processes can be started.
        raise BrokenProcessPool(str(error)) from error


@contextmanager
def _environment_of_workers() -> Iterator[None]:
    """Start processes with variables that save memory and without standard error, which they inherit."""
    added = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def _next(pending: "deque[Future[Result]]", pool: ProcessPoolExecutor) -> Result:
    future = pending.popleft()
    while True:
        try:
            return future.result(_SECONDS_BETWEEN_LOOKS)
        except TimeoutError:
            # If memory runs out in the thread that serves the processes, it ends and no result ever arrives.
            if not _manager_is_alive(pool):
                raise BrokenProcessPool("the pool has stopped") from None


def _manager_is_alive(pool: ProcessPoolExecutor) -> bool:
    manager = getattr(pool, "_executor_manager_thread", None)
    return manager is None or manager.is_alive()


def _shut_down(pool: ProcessPoolExecutor) -> None:
    """End the workers; those of a broken pool would keep the interpreter from exiting."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=_manager_is_alive(pool), cancel_futures=True)
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join()


def _start(start: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    # The worker processes use all cores already; the threads of the tokenizers library would compete with them.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Ctrl-C is sent to the whole process group, but only the main process handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    start(*arguments)


def _exit_with_parent() -> None:
    # Without this, the workers of a pool wait forever when the main process is killed.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
