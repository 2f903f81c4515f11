"""Encodes chunks in several processes and yields them in order."""

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from lightbert.data.corpus import tokenizer
from lightbert.data.corpus.encoding import DocumentEncoder, EncodedDocuments, Sentences
from lightbert.data.corpus.parts import Chunk
from lightbert.processes import map_in_order

Mark = TypeVar("Mark")


def encode_chunks(
    chunks: Iterable[Chunk[Mark]], tokenizer_file: Path, sentences: Sentences, held_out: float, workers: int
) -> Iterator[tuple[Chunk[Mark], EncodedDocuments]]:
    """Yield each chunk with its encoded documents, in the order of the chunks for any number of workers."""
    if workers <= 1:
        encode = DocumentEncoder(tokenizer.load(tokenizer_file), sentences, held_out)
        for chunk in chunks:
            yield chunk, encode(chunk.documents)
        return
    sent: deque[Chunk[Mark]] = deque()

    def documents() -> Iterator[list[str]]:
        for chunk in chunks:
            sent.append(chunk)
            yield chunk.documents

    for encoded in map_in_order(_encode, documents(), workers, _start, (tokenizer_file, sentences, held_out)):
        yield sent.popleft(), encoded


_encoder: DocumentEncoder


def _start(tokenizer_file: Path, sentences: Sentences, held_out: float) -> None:
    global _encoder
    _encoder = DocumentEncoder(tokenizer.load(tokenizer_file), sentences, held_out)


def _encode(documents: list[str]) -> EncodedDocuments:
    return _encoder(documents)
