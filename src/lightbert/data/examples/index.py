"""The examples of an epoch as arrays: the source and position of each run of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lightbert.data.corpus.shards import Shards

Array = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Mark(IntFlag):
    """Special tokens and segment changes around a piece."""

    OPENS = 1  # [CLS] before the piece: a text starts
    CLOSES = 2  # [SEP] after the piece
    SECOND = 4  # the second segment starts with the piece


class Pieces(NamedTuple):
    """Runs of consecutive tokens in row order; one entry per piece."""

    example: Array  # example numbers from 0, ascending, without gaps
    start: Array  # position of the first token over all shards
    length: Array  # may be 0
    marks: NDArray[np.uint8]


@dataclass(frozen=True)
class Index:
    """All examples of an epoch, about 40 bytes each; example e has the pieces `first[e]` to `first[e + 1]`."""

    length: int
    packed: bool
    first: Array  # [examples + 1]
    start: Array  # [pieces]
    size: NDArray[np.uint16]  # [pieces]
    column: NDArray[np.uint16]  # [pieces], the column of the first token
    marks: NDArray[np.uint8]  # [pieces]
    labels: NDArray[np.uint8] | None = None  # [examples]

    def __len__(self) -> int:
        return len(self.first) - 1


class Builder(Protocol):
    """Builds examples of at most `length` tokens from sentences, as a pure function of its arguments."""

    varies_by_epoch: ClassVar[bool]
    """Whether the examples change from epoch to epoch."""

    def build(self, shards: Shards, length: int, seed: int, epoch: int) -> Index:
        """Index the examples of one epoch."""
        ...


def join(
    parts: Sequence[Pieces], length: int, *, packed: bool = False, labels: NDArray[np.uint8] | None = None
) -> Index:
    """Join the pieces of all shards, in order, into one index."""
    counts = np.concatenate([np.bincount(part.example) for part in parts])
    return Index(
        length=length,
        packed=packed,
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        start=np.concatenate([part.start for part in parts]),
        size=np.concatenate([part.length for part in parts]).astype(np.uint16),
        column=np.concatenate([_columns(part) for part in parts]).astype(np.uint16),
        marks=np.concatenate([part.marks for part in parts]),
        labels=labels,
    )


def cumsum_before(groups: NDArray[Any], amounts: Array) -> Array:
    """Return the exclusive cumulative sum of `amounts` within each run of equal `groups`."""
    before = np.cumsum(amounts) - amounts
    begins = np.flatnonzero(run_starts(groups))
    return before - np.repeat(before[begins], np.diff(begins, append=len(groups)))


def run_starts(groups: NDArray[Any]) -> Flags:
    """Return a mask of the first entry of each run of equal `groups`."""
    first = np.ones(len(groups), bool)
    first[1:] = groups[1:] != groups[:-1]
    return first


def pair_marks(segment: Array) -> NDArray[np.uint8]:
    """Return the marks of [CLS] A [SEP] B [SEP] pieces, given 2·example + segment of each in ascending order."""
    first = run_starts(segment)
    last = np.ones_like(first)
    last[:-1] = first[1:]
    opens = run_starts(segment // 2)
    return combine_marks(opens=opens, closes=last, second=first & (segment % 2 == 1))


def combine_marks(*, opens: Flags, closes: Flags, second: Flags | None = None) -> NDArray[np.uint8]:
    """Combine flags into the marks of pieces."""
    marks = opens * np.uint8(Mark.OPENS) | closes * np.uint8(Mark.CLOSES)
    return marks if second is None else marks | second * np.uint8(Mark.SECOND)


def _columns(pieces: Pieces) -> Array:
    opens = (pieces.marks & Mark.OPENS > 0).astype(np.int64)
    closes = (pieces.marks & Mark.CLOSES > 0).astype(np.int64)
    return cumsum_before(pieces.example, opens + pieces.length + closes) + opens
