"""Packing texts of different lengths into rows of one width, without torch."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbert.data.examples.features import Features
from lightbert.errors import InputError

Array = NDArray[np.int64]


@dataclass(frozen=True)
class Packing:
    """The places of texts in packed rows: each text is contiguous and in one row."""

    width: int
    rows: int
    starts: Array
    """[n], the place of the first token of each text in the flattened rows: row · width + column."""
    tokens: int

    @property
    def fill(self) -> float:
        """The share of the rows that contains tokens; 1 without rows."""
        return self.tokens / (self.rows * self.width) if self.rows else 1.0

    def part(self, first: int, stop: int) -> tuple[Array, Array]:
        """Return the texts of the rows from `first` to `stop` in the order of their places, and these places.

        The places are counted from the first of these rows.
        """
        row = self.starts // self.width
        chosen = np.flatnonzero((row >= first) & (row < stop))
        chosen = chosen[np.argsort(self.starts[chosen])]
        return chosen, self.starts[chosen] - first * self.width


def pack(lengths: Array, width: int, texts_per_row: int | None = None) -> Packing:
    """Pack texts into few rows: best-fit decreasing.

    The longest text comes first; each is appended to the fullest row that has room for it, or begins a new row. The
    result depends on the lengths only.
    texts_per_row: the maximum number of texts in a row; None = unlimited.
    """
    if len(lengths) and not 1 <= int(lengths.min()) <= int(lengths.max()) <= width:
        raise InputError(
            f"packed texts must have 1 to {width} tokens, the width of a row, got {lengths.min()} to {lengths.max()}"
        )
    # Without a limit of its own, a row is full before it has more texts than columns.
    limit = texts_per_row or width
    order = np.argsort(-lengths, kind="stable")
    starts = [0] * len(lengths)
    counts: list[int] = []
    # The rows by their free columns, and the numbers of free columns that occur, as bits.
    open_rows: list[list[int]] = [[] for _ in range(width + 1)]
    occurring = 0
    for text, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        fitting = occurring >> length
        if fitting:
            free = length + (fitting & -fitting).bit_length() - 1
            row = open_rows[free].pop()
            if not open_rows[free]:
                occurring ^= 1 << free
        else:
            free, row = width, len(counts)
            counts.append(0)
        starts[text] = row * width + width - free
        counts[row] += 1
        free -= length
        if free and counts[row] < limit:
            open_rows[free].append(row)
            occurring |= 1 << free
    return Packing(width, len(counts), np.array(starts, dtype=np.int64), int(lengths.sum()))


class PackedRows(NamedTuple):
    """Packed rows as arrays [B, T], and where their texts are; the shapes don't depend on the number of texts."""

    ids: Array
    texts: NDArray[np.int32]
    """The number of each token's text, from 1; 0 in the padding."""
    segments: Array
    at: Array
    """The index of each token in the features; 0 in the padding."""
    starts: Array
    """[N], the place of the first token of each text in the flattened rows; B·T after the last text."""
    lengths: Array
    """[N], the number of tokens of each text; 0 after the last text."""


def packed_rows(
    features: Features, chosen: Array, starts: Array, shape: tuple[int, int], pad: int, capacity: int
) -> PackedRows:
    """Put the chosen texts at their places in rows of a given shape; there is room for `capacity` texts."""
    lengths = features.lengths[chosen]
    owner = np.repeat(np.arange(len(chosen)), lengths)
    within = np.arange(len(owner)) - (np.cumsum(lengths) - lengths)[owner]
    place, source = starts[owner] + within, features.starts[chosen][owner] + within
    size = shape[0] * shape[1]
    ids, segments, at = np.full(size, pad, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    texts = np.zeros(size, np.int32)
    ids[place], texts[place], at[place] = features.tokens[source], owner + 1, source
    segments[place] = within >= features.seconds[chosen][owner]
    missing = capacity - len(chosen)
    return PackedRows(
        ids=ids.reshape(shape),
        texts=texts.reshape(shape),
        segments=segments.reshape(shape),
        at=at.reshape(shape),
        starts=np.pad(starts, (0, missing), constant_values=size),
        lengths=np.pad(lengths, (0, missing)),
    )
