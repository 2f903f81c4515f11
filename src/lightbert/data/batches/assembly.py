"""Assembles the rows of a batch from memory-mapped tokens."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbert.data.corpus.shards import Shards
from lightbert.data.examples.index import Array, Index, Mark
from lightbert.data.examples.specials import Specials


class Rows(NamedTuple):
    """Examples as arrays, with the fields of a batch."""

    ids: Array  # [B, T]
    mask: NDArray[np.bool_] | NDArray[np.int32]  # [B, T]
    segments: Array  # [B, T]


def assemble(shards: Shards, index: Index, examples: Array, specials: Specials) -> Rows:
    """Assemble examples into rows of the index's length, padded on the right."""
    length, count = index.length, len(examples)
    piece, row = _expand(index.first[examples], index.first[examples + 1] - index.first[examples])
    # In token order, so that each shard is read once and sequentially.
    order = np.argsort(index.start[piece])
    piece, row = piece[order], row[order]
    start, size, marks = index.start[piece], index.size[piece].astype(np.int64), index.marks[piece]
    place = row * length + index.column[piece]

    ids = np.full(count * length, specials.pad, np.int64)
    source, owner = _expand(start, size)
    ids[source + (place - start)[owner]] = _read(shards, source)
    opens, closes = marks & Mark.OPENS > 0, marks & Mark.CLOSES > 0
    ids[place[opens] - 1] = specials.cls
    ids[(place + size)[closes]] = specials.sep

    columns = np.arange(length)
    real = columns < _ends(index, examples)[:, None]
    splits = np.full(count, length)
    second = marks & Mark.SECOND > 0
    splits[row[second]] = index.column[piece[second]]
    segments = ((columns >= splits[:, None]) & real).astype(np.int64)
    if not index.packed:
        return Rows(ids.reshape(count, length), real, segments)
    texts = np.zeros(count * length, np.int32)
    texts[place[opens] - 1] = 1
    return Rows(ids.reshape(count, length), texts.reshape(count, length).cumsum(1, dtype=np.int32) * real, segments)


def _expand(starts: Array, counts: Array) -> tuple[Array, Array]:
    """Concatenate `range(starts[i], starts[i] + counts[i])` for all i; also return the i of each entry."""
    owner = np.repeat(np.arange(len(starts)), counts)
    before = np.cumsum(counts) - counts
    return np.arange(len(owner)) + (starts - before)[owner], owner


def _ends(index: Index, examples: Array) -> Array:
    """Return the number of columns that each example fills."""
    last = index.first[examples + 1] - 1
    closes = index.marks[last] & Mark.CLOSES > 0
    return index.column[last].astype(np.int64) + index.size[last] + closes


def _read(shards: Shards, positions: Array) -> Array:
    """Read the tokens at positions over all shards; the positions must be sorted by shard."""
    tokens = np.empty(len(positions), np.int64)
    base = low = 0
    for shard in shards.shards:
        end = base + len(shard.tokens)
        high = int(np.searchsorted(positions, end))
        tokens[low:high] = shard.tokens[positions[low:high] - base]
        base, low = end, high
    return tokens
