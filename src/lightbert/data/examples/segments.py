"""ELECTRA's examples: a chunk of sentences shared out between two segments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lightbert.data.corpus.shards import Shards
from lightbert.data.examples.chunks import Table, chunk_ends, shard_tables, walk
from lightbert.data.examples.index import Array, Flags, Index, Pieces, cumsum_before, join, pair_marks
from lightbert.errors import InputError
from lightbert.ops.randomness import Stream, bits, chance

# (tokens in A, tokens of the sentence, limit of A, whether B has begun, coin) -> whether the sentence goes to B
Condition = Callable[[Array, Array, Array, Flags, Flags], Flags]

_MIN_LENGTH = 5
_UNLIMITED = 100_000


@dataclass(frozen=True)
class Segments:
    """[CLS] A [SEP] B [SEP] from sentences of one document, read until they fill `length`.

    A takes the first sentence, all that keep it under half of the target, and with an even chance the one that goes
    over; B takes the rest. A later sentence that still fits goes to A although B has begun, as in ELECTRA.
    `released` is the condition that ConvBERT was released with, before ELECTRA's fix (electra#20): A takes everything
    once it has begun and B only the long sentences before that, so that few examples have two segments.
    `single` is how often A has no limit, `short` how often an example aims at a random length.
    """

    released: bool = False
    single: float = 0.1
    short: float = 0.05

    varies_by_epoch: ClassVar[bool] = True

    def build(self, shards: Shards, length: int, seed: int, epoch: int) -> Index:
        """Index the examples of one epoch."""
        if length < _MIN_LENGTH:
            raise InputError(f"segments of length {length} hold no text; choose a length of at least {_MIN_LENGTH}")
        return join([self._pieces(table, length, seed, epoch) for table in shard_tables(shards)], length)

    def _pieces(self, table: Table, length: int, seed: int, epoch: int) -> Pieces:
        numbers = np.arange(len(table.sentences) - 1)
        words = bits(seed, Stream.LENGTH, epoch, table.number, numbers)
        is_short = words < chance(self.short)
        # Below the threshold the word is as good as new.
        shorter = _MIN_LENGTH + words * (length - _MIN_LENGTH + 1) // max(1, chance(self.short))
        targets = np.where(is_short, shorter, length)
        starts = walk(chunk_ends(table, targets))
        counts = np.diff(starts, append=len(numbers))

        coins = bits(seed, Stream.SEGMENT, epoch, table.number, numbers)
        # The first sentence of an example needs no coin, so that its word can decide on the limit.
        limits = np.where(coins[starts] < chance(self.single), _UNLIMITED, (targets[starts] - 3) // 2)
        condition = _in_second_segment_released if self.released else _in_second_segment
        second = _share(condition, np.diff(table.sentences), coins < chance(0.5), starts, counts, limits)
        return _cut(table, np.repeat(np.arange(len(starts)), counts), second, length)


def _in_second_segment(first: Array, size: Array, limit: Array, begun: Flags, coin: Flags) -> Flags:
    fits: Flags = (first == 0) | (first + size < limit)
    return ~fits & ~(~begun & (first < limit) & coin)


def _in_second_segment_released(first: Array, size: Array, limit: Array, begun: Flags, coin: Flags) -> Flags:
    too_long: Flags = (first == 0) & (size >= limit)
    return too_long & ~(begun & coin)


def _share(condition: Condition, sizes: Array, coins: Flags, starts: Array, counts: Array, limits: Array) -> Flags:
    """Say which sentences go to the second segment: all examples in step, one sentence each at a time."""
    second = np.zeros(len(sizes), bool)
    first, begun = np.zeros(len(starts), np.int64), np.zeros(len(starts), bool)
    active = np.arange(len(starts))
    for turn in range(int(counts.max())):
        active = active[counts[active] > turn]
        sentence = starts[active] + turn
        goes = condition(first[active], sizes[sentence], limits[active], begun[active], coins[sentence])
        second[sentence] = goes
        first[active] += np.where(goes, 0, sizes[sentence])
        begun[active] |= goes
    return second


def _cut(table: Table, example: Array, second: Flags, length: int) -> Pieces:
    """Make runs of sentences into pieces, put each example's first segment first and trim to `length`."""
    begins = np.flatnonzero(np.diff(2 * example + second, prepend=-1))
    start = table.sentences[begins]
    size = np.diff(start, append=table.sentences[-1])
    # The released condition can leave the first segment empty, and writes [CLS] [SEP] B [SEP] then.
    has_first = np.zeros(example[-1] + 1, bool)
    has_first[example[~second]] = True
    empty = np.flatnonzero(~has_first)
    nothing = np.zeros_like(empty)
    key = np.concatenate([2 * empty, (2 * example + second)[begins]])
    order = np.argsort(key, kind="stable")
    key = key[order]
    start = np.concatenate([nothing, start])[order]
    size = np.concatenate([nothing, size])[order]

    in_second = key % 2 == 1
    taken = np.minimum(np.bincount(key[~in_second] // 2, size[~in_second]).astype(np.int64), length - 2)
    room = np.where(in_second, length - 3 - taken[key // 2], length - 2)
    size = np.clip(room - cumsum_before(key, size), 0, size)
    kept = (size > 0) | ~in_second
    return Pieces(key[kept] // 2, start[kept], size[kept], pair_marks(key[kept]))
