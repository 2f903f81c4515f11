"""ELECTRA's examples: a chunk of sentences divided into two segments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lightbert.data.corpus.shards import Shards
from lightbert.data.examples.chunks import Table, chunk_ends, shard_tables, walk
from lightbert.data.examples.index import Array, Flags, Index, Pieces, cumsum_before, join, pair_marks
from lightbert.errors import InputError
from lightbert.ops.randomness import Stream, bits, chance

# (tokens in A, tokens of the sentence, limit of A, whether B has started, coin) -> whether the sentence is added to B
Condition = Callable[[Array, Array, Array, Flags, Flags], Flags]

_MIN_LENGTH = 5
_UNLIMITED = 100_000


@dataclass(frozen=True)
class Segments:
    """[CLS] A [SEP] B [SEP] from sentences of one document, read until they fill `length`.

    A gets the first sentence, all sentences that keep it below half of the target, and with probability 0.5 the one
    that exceeds it; B gets the rest. A later sentence that still fits is added to A even after B has started, as in
    ELECTRA. `released` selects the condition of the released ConvBERT, before ELECTRA's fix (electra#20): A gets
    everything once it has started, and B only the long sentences before that, so few examples have two segments.
    `single` is the probability that A has no limit, `short` the probability of a random target length.
    """

    released: bool = False
    single: float = 0.1
    short: float = 0.05

    varies_by_epoch: ClassVar[bool] = True

    def build(self, shards: Shards, length: int, seed: int, epoch: int) -> Index:
        """Index the examples of one epoch."""
        if length < _MIN_LENGTH:
            raise InputError(f"the length of segments must be >= {_MIN_LENGTH}, got {length}")
        return join([self._pieces(table, length, seed, epoch) for table in shard_tables(shards)], length)

    def _pieces(self, table: Table, length: int, seed: int, epoch: int) -> Pieces:
        numbers = np.arange(len(table.sentences) - 1)
        words = bits(seed, Stream.LENGTH, epoch, table.number, numbers)
        is_short = words < chance(self.short)
        # Given that it is below the threshold, the random number is again uniform.
        shorter = _MIN_LENGTH + words * (length - _MIN_LENGTH + 1) // max(1, chance(self.short))
        targets = np.where(is_short, shorter, length)
        starts = walk(chunk_ends(table, targets))
        counts = np.diff(starts, append=len(numbers))

        coins = bits(seed, Stream.SEGMENT, epoch, table.number, numbers)
        # The first sentence of an example needs no coin, so its random number determines the limit.
        limits = np.where(coins[starts] < chance(self.single), _UNLIMITED, (targets[starts] - 3) // 2)
        condition = _in_second_segment_released if self.released else _in_second_segment
        second = _assign_segments(condition, np.diff(table.sentences), coins < chance(0.5), starts, counts, limits)
        return _truncate(table, np.repeat(np.arange(len(starts)), counts), second, length)


def _in_second_segment(first: Array, size: Array, limit: Array, started: Flags, coin: Flags) -> Flags:
    fits: Flags = (first == 0) | (first + size < limit)
    return ~fits & ~(~started & (first < limit) & coin)


def _in_second_segment_released(first: Array, size: Array, limit: Array, started: Flags, coin: Flags) -> Flags:
    too_long: Flags = (first == 0) & (size >= limit)
    return too_long & ~(started & coin)


def _assign_segments(
    condition: Condition, sizes: Array, coins: Flags, starts: Array, counts: Array, limits: Array
) -> Flags:
    """Return which sentences belong to the second segment, processing one sentence of every example at a time."""
    second = np.zeros(len(sizes), bool)
    first, started = np.zeros(len(starts), np.int64), np.zeros(len(starts), bool)
    active = np.arange(len(starts))
    for turn in range(int(counts.max())):
        active = active[counts[active] > turn]
        sentence = starts[active] + turn
        in_second = condition(first[active], sizes[sentence], limits[active], started[active], coins[sentence])
        second[sentence] = in_second
        first[active] += np.where(in_second, 0, sizes[sentence])
        started[active] |= in_second
    return second


def _truncate(table: Table, example: Array, second: Flags, length: int) -> Pieces:
    """Join runs of sentences into pieces, order them by example and segment, and truncate to `length`."""
    begins = np.flatnonzero(np.diff(2 * example + second, prepend=-1))
    start = table.sentences[begins]
    size = np.diff(start, append=table.sentences[-1])
    # With the released condition the first segment can be empty, which gives [CLS] [SEP] B [SEP].
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
