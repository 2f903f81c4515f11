"""Streams of documents, split into parts that become shards, split into chunks for the workers.

The splits depend on the text only, so the output bytes are the same for any number of workers, after any crash, and
for a datatrove task that reads the same files.

- Stream r of N reads sources r, r + N, r + 2N, … in sequence, as task r of N does in datatrove.
- A part ends with the document that reaches `characters`; it becomes a train shard and a held-out shard.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from lightbert.data.text.sources import Source

Mark = TypeVar("Mark")

CHUNK = 1 << 20

Reader = Callable[[Source], Iterator[tuple[str, int]]]


@dataclass(frozen=True)
class Place:
    """A position in a stream: `documents` documents of source number `source`, and `position` bytes in total."""

    source: int = 0
    documents: int = 0
    position: int = 0


class Chunk(NamedTuple, Generic[Mark]):
    """Documents to encode together, the mark of the last document, and whether the part ends with this chunk."""

    documents: list[str]
    mark: Mark
    ends_part: bool


def read_stream(sources: Sequence[Source], read: Reader, start: Place) -> Iterator[tuple[str, Place]]:
    """Yield the documents of a stream from `start` on, each with the position after it."""
    for number in range(start.source, len(sources)):
        before = sum(source.size for source in sources[:number])
        skipped = start.documents if number == start.source else 0
        documents = islice(read(sources[number]), skipped, None)
        for count, (document, position) in enumerate(documents, start=skipped + 1):
            yield document, Place(number, count, before + position)


def split_chunks(documents: Iterable[tuple[str, Mark]], characters: int) -> Iterator[Chunk[Mark]]:
    """Split documents into chunks; the last part may be shorter, and then no chunk has `ends_part`."""
    pending: list[str] = []
    in_chunk = in_part = 0
    for document, mark in documents:
        pending.append(document)
        in_chunk += len(document)
        in_part += len(document)
        ends_part = in_part >= characters
        if ends_part or in_chunk >= CHUNK:
            yield Chunk(pending, mark, ends_part)
            pending, in_chunk = [], 0
            in_part = 0 if ends_part else in_part
    if pending:
        yield Chunk(pending, mark, ends_part=False)
