"""The composite paper's examples: pairs of consecutive lines (its Appendix A.1)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lightbert.data.corpus.shards import Shards
from lightbert.data.examples.chunks import Table, shard_tables
from lightbert.data.examples.index import Index, Pieces, combine_marks, join
from lightbert.errors import InputError


@dataclass(frozen=True)
class LinePairs:
    """[CLS] A [SEP] B [SEP] from lines 0 and 1, 2 and 3 and so on, regardless of document boundaries.

    Truncated on the right to `length`, possibly within A or without the last [SEP]; one segment; no next-sentence
    label. Deviation: the odd last line of a shard is dropped instead of paired with the first line of the next shard.
    """

    varies_by_epoch: ClassVar[bool] = False

    def build(self, shards: Shards, length: int, seed: int, epoch: int) -> Index:
        """Index the pairs, which are the same in every epoch."""
        if length < 2:
            raise InputError(f"the length of line pairs must be >= 2, got {length}")
        return join([_pieces(table, length) for table in shard_tables(shards)], length)


def _pieces(table: Table, length: int) -> Pieces:
    pairs = (len(table.sentences) - 1) // 2
    start = table.sentences[: 2 * pairs]
    first, second = np.diff(table.sentences[: 2 * pairs + 1]).reshape(pairs, 2).T
    size = np.stack([np.minimum(first, length - 1), np.clip(length - 2 - first, 0, second)], axis=1).ravel()
    closes = np.stack([first <= length - 2, first + second <= length - 3], axis=1).ravel()
    opens = np.tile([True, False], pairs)
    kept = size > 0
    marks = combine_marks(opens=opens, closes=closes)
    return Pieces(np.repeat(np.arange(pairs), 2)[kept], start[kept], size[kept], marks[kept])
