"""Work in other processes: a function in a process of its own, a function in several workers, and their threads.

A library that is not written in Python can abort its process when memory runs out. In a process of its own it ends that
process only, and the caller gets an exception. All processes end when the one that started them ends, in any way.
"""

import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import IO, Any, TypeVar

from lightbert.errors import InputError

Report = Callable[[int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")

THREADS = "OMP_NUM_THREADS"
"""The variable with the number of threads of PyTorch's libraries.

`torch.set_num_threads` is not enough: on aarch64, oneDNN computes linear layers with the Arm Compute Library, which
uses the number of threads that the environment had when torch was imported.
"""

# Enough to keep the workers busy, few enough to keep memory small.
_ITEMS_PER_WORKER = 3
# `python -m` would find lightbert only where the interpreter looks by default.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from lightbert.processes import main; main(*sys.argv[2:])"
)


def has_threads(threads: int) -> bool:
    """Whether the environment has this number of threads; 0: any number."""
    return threads == 0 or os.environ.get(THREADS) == str(threads)


def set_threads(threads: int) -> None:
    """Set the number of threads, unless it is 0 or torch is already imported."""
    if threads and "torch" not in sys.modules:
        os.environ[THREADS] = str(threads)


class ProcessFailedError(Exception):
    """The process ended without a result; `printed` is what it wrote to standard error, `code` its exit status.

    The exit status is negative for a signal.
    """

    def __init__(self, code: int, printed: str) -> None:
        super().__init__(f"a process ended with {code}: {printed}")
        self.code, self.printed = code, printed


def call(function: str, arguments: Sequence[Any], *, report: Report, environment: Mapping[str, str]) -> str:
    """Return the string that `function`, written as "module:name", returns in another process.

    It is called with a function that passes its progress, a number, to `report`, and with the arguments, which must be
    JSON. An `InputError` is raised here, and so is an OSError.

    environment: added to the environment variables.
    """
    with tempfile.TemporaryFile() as errors:
        process = start(function, arguments, environment, subprocess.PIPE, errors)
        message: dict[str, Any] = {}
        try:
            assert process.stdout is not None
            for line in process.stdout:
                message = json.loads(line)
                if "done" in message:
                    report(message["done"])
            code = process.wait()
        finally:
            # Also after Ctrl-C: nothing keeps running.
            end(process)
        if code == 0 and "result" in message:
            return str(message["result"])
        if "error" in message:
            raise InputError(message["error"])
        if "system" in message:
            raise OSError(*message["system"])
        errors.seek(0)
        raise ProcessFailedError(code, errors.read().decode("utf-8", "replace"))


def start(
    function: str, arguments: Sequence[Any], environment: Mapping[str, str], output: int, errors: IO[bytes] | int
) -> "subprocess.Popen[bytes]":
    """Start the process of `call`, which ends when this one does; its reports and its result go to `output`."""
    # The entries that imports look at.
    path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
    return subprocess.Popen(
        [sys.executable, "-c", _START, path, function, json.dumps(arguments)],
        # The other process ends when its standard input does.
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=errors,
        env={**os.environ, **environment},
    )


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process, if it has not ended."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def main(function: str, arguments: str) -> None:
    """Call a function in the other process, and write what it reports and returns to standard output as JSON lines."""
    # Ctrl-C is sent to all processes of a terminal, but only the first one handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_standard_input, daemon=True).start()
    # What libraries print is not part of the result.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def write(**message: Any) -> None:
        output.write(json.dumps(message) + "\n")
        output.flush()

    module, _, name = function.partition(":")
    try:
        called = getattr(importlib.import_module(module), name)
        write(result=called(lambda done: write(done=done), *json.loads(arguments)))
    except InputError as error:
        write(error=str(error))
        sys.exit(1)
    except OSError as error:
        write(system=[error.errno, error.strerror, error.filename and str(error.filename)])
        sys.exit(1)


def _exit_with_standard_input() -> None:
    os.read(0, 1)
    os._exit(1)


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
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker, (start, arguments))
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= _ITEMS_PER_WORKER * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except (BrokenProcessPool, MemoryError) as error:
        raise InputError(
            "a worker process died, perhaps because memory ran out; run the same command again with fewer --workers, "
            "finished shards are kept"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(start: Callable[..., object], arguments: tuple[Any, ...]) -> None:
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
