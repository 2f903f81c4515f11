"""Packed rows: consecutive documents, split where a row is full and separated by the mask."""

from array import array
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lightbert.data.corpus.shards import Shards
from lightbert.data.examples.chunks import Table, shard_tables
from lightbert.data.examples.index import Array, Index, Mark, Pieces, join
from lightbert.errors import InputError


@dataclass(frozen=True)
class Packing:
    """Rows of several texts [CLS] … [SEP], numbered from 1 by the mask; each text is a document or a part of one.

    A document that does not fit continues in the next row. Only the end of a row is padded: a document that would be
    split after fewer than `shortest` tokens starts in the next row instead.
    """

    shortest: int = 8

    varies_by_epoch: ClassVar[bool] = False

    def build(self, shards: Shards, length: int, seed: int, epoch: int) -> Index:
        """Index the rows, which are the same in every epoch."""
        if length < 3:
            raise InputError(f"the length of packed rows must be >= 3, got {length}")
        return join([_pieces(table, length, self.shortest) for table in shard_tables(shards)], length, packed=True)


def _pieces(table: Table, length: int, shortest: int) -> Pieces:
    tokens = table.sentences[table.documents]
    # Slots: all documents with their [CLS] and [SEP], concatenated. Document d has the slots frames[d]:frames[d + 1].
    frames = tokens - tokens[0] + 2 * np.arange(len(tokens))
    begins, ends = _rows(frames, length, shortest)
    first = np.searchsorted(frames, begins, side="right") - 1
    counts = np.searchsorted(frames, ends) - first

    row = np.repeat(np.arange(len(begins)), counts)
    document = np.arange(len(row)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    begin = np.maximum(begins[row], frames[document])
    end = np.minimum(ends[row], frames[document + 1])
    marks = np.full(len(row), Mark.OPENS | Mark.CLOSES, np.uint8)
    return Pieces(row, tokens[document] + begin - frames[document], end - begin - 2, marks)


def _rows(frames: Array, length: int, shortest: int) -> tuple[Array, Array]:
    """Return the first slot of each row and the end of its slots.

    A row that starts within a document has its [CLS] in the slot of the previous token, and a row that ends within a
    document has its [SEP] in the slot of the next token, so two rows that share a document overlap by two slots.
    """
    bounds = frames.tolist()
    begins, ends = array("q"), array("q")
    begin, document = 0, 0
    while begin < bounds[-1]:
        end = begin + length
        while document + 1 < len(bounds) and bounds[document + 1] <= end:
            document += 1
        boundary = bounds[document]
        # `boundary` is the last document boundary in the row, including its end.
        if boundary == end or document + 1 == len(bounds) or begin < boundary > end - 2 - shortest:
            end = following = boundary
        else:
            following = end - 2
        begins.append(begin)
        ends.append(end)
        begin = following
    return np.array(begins, np.int64), np.array(ends, np.int64)
