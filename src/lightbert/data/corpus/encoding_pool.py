"""Encodes chunks in several processes and returns them in order."""

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

# Enough that no worker waits for the reader, few enough that memory stays small.
_CHUNKS_PER_WORKER = 3


def encode_chunks(
    chunks: Iterable[Chunk[Mark]], tokenizer_file: Path, sentences: Sentences, held_out: float, workers: int
) -> Iterator[tuple[Chunk[Mark], EncodedDocuments]]:
    """Yield each chunk with its documents encoded, in the order of the chunks whatever the number of workers."""
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
            pending.append((chunk, pool.submit(_encode, chunk.documents)))
            if len(pending) >= _CHUNKS_PER_WORKER * workers:
                yield _next(pending)
        while pending:
            yield _next(pending)
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process died, perhaps for want of memory; run the same command again with fewer --workers, "
            "finished shards are kept"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _next(pending: "deque[tuple[Chunk[Mark], Future[EncodedDocuments]]]") -> tuple[Chunk[Mark], EncodedDocuments]:
    chunk, future = pending.popleft()
    return chunk, future.result()


_encoder: DocumentEncoder


def _start(tokenizer_file: Path, sentences: Sentences, held_out: float) -> None:
    global _encoder
    # The processes are the parallelism; the library's threads would only compete with them.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Ctrl-C reaches the whole group; the main process alone decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _encoder = DocumentEncoder(tokenizer.load(tokenizer_file), sentences, held_out)


def _encode(documents: list[str]) -> EncodedDocuments:
    return _encoder(documents)


def _exit_with_parent() -> None:
    # A pool's workers wait for their next task for ever when the main process is killed.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
