"""Encodes chunks in several processes and yields them in order."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

from lightbert.data.corpus import tokenizer
from lightbert.data.corpus.encoding import DocumentEncoder, EncodedDocuments, Sentences
from lightbert.data.corpus.parts import Chunk
from lightbert.errors import InputError

Mark = TypeVar("Mark")

# Enough to keep the workers busy, few enough to keep memory small.
_CHUNKS_PER_WORKER = 3
_SECONDS_BETWEEN_LOOKS = 5.0


def encode_chunks(
    chunks: Iterable[Chunk[Mark]], tokenizer_file: Path, sentences: Sentences, held_out: float, workers: int
) -> Iterator[tuple[Chunk[Mark], EncodedDocuments]]:
    """Yield each chunk with its encoded documents, in the order of the chunks for any number of workers."""
    if workers <= 1:
        encode = DocumentEncoder(tokenizer.load(tokenizer_file), sentences, held_out)
        for chunk in chunks:
            yield chunk, encode(chunk.documents)
        return
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), _start, (tokenizer_file, sentences, held_out)
    )
    pending: deque[tuple[Chunk[Mark], Future[EncodedDocuments]]] = deque()
    try:
        for chunk in chunks:
            pending.append((chunk, _submit(pool, chunk.documents)))
            if len(pending) >= _CHUNKS_PER_WORKER * workers:
                yield _next(pending, pool)
        while pending:
            yield _next(pending, pool)
    except (BrokenProcessPool, MemoryError) as error:
        raise InputError(
            "a worker process died, perhaps because memory ran out; run the same command again with fewer --workers, "
            "finished shards are kept"
        ) from error
    finally:
        _shut_down(pool)


def _submit(pool: ProcessPoolExecutor, documents: list[str]) -> "Future[EncodedDocuments]":
    try:
        return pool.submit(_encode, documents)
    except (RuntimeError, OSError) as error:
        # Without memory, neither a process nor the thread that serves the processes can be started.
        raise BrokenProcessPool(str(error)) from error


def _next(
    pending: "deque[tuple[Chunk[Mark], Future[EncodedDocuments]]]", pool: ProcessPoolExecutor
) -> tuple[Chunk[Mark], EncodedDocuments]:
    chunk, future = pending.popleft()
    while True:
        try:
            return chunk, future.result(_SECONDS_BETWEEN_LOOKS)
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


_encoder: DocumentEncoder


def _start(tokenizer_file: Path, sentences: Sentences, held_out: float) -> None:
    global _encoder
    # The worker processes use all cores already; the library's threads would compete with them.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Ctrl-C is sent to the whole process group, but only the main process handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _encoder = DocumentEncoder(tokenizer.load(tokenizer_file), sentences, held_out)


def _encode(documents: list[str]) -> EncodedDocuments:
    return _encoder(documents)


def _exit_with_parent() -> None:
    # Without this, the workers of a pool wait forever when the main process is killed.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
