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
            pending.append((chunk, pool.submit(_encode, chunk.documents)))
            if len(pending) >= _CHUNKS_PER_WORKER * workers:
                yield _next(pending)
        while pending:
            yield _next(pending)
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process died, perhaps because memory ran out; run the same command again with fewer --workers, "
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
