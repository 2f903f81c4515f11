"""Full windows: documents one after the other, cut where a row is full and kept apart by the mask."""

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
    """Rows of texts [CLS] … [SEP] numbered from 1 by the mask, each a document or as much of it as fits.

    A document that is cut goes on in the next row. Only the last columns of a row can stay empty: where a document
    would have to be cut after fewer than `shortest` tokens, it starts in the next row instead.
    """

    shortest: int = 8

    varies_by_epoch: ClassVar[bool] = False

    def build(self, shards: Shards, length: int, seed: int, epoch: int) -> Index:
        """Index the rows, which are the same in every epoch."""
        if length < 3:
            raise InputError(f"windows of length {length} hold no text; choose a length of at least 3")
        return join([_pieces(table, length, self.shortest) for table in shard_tables(shards)], length, packed=True)


def _pieces(table: Table, length: int, shortest: int) -> Pieces:
    tokens = table.sentences[table.documents]
    # Slots: every document with its [CLS] and [SEP], all in one line. Document d has the slots frames[d]:frames[d + 1].
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
    """Return the slots that each row begins with and ends before.

    A row that begins inside a document puts its [CLS] in the slot of the token before, and one that ends inside puts
    its [SEP] in the slot of the token after: two rows that share a document overlap by these two slots.
    """
    bounds = frames.tolist()
    begins, ends = array("q"), array("q")
    begin, document = 0, 0
    while begin < bounds[-1]:
        end = begin + length
        while document + 1 < len(bounds) and bounds[document + 1] <= end:
            document += 1
        opened = bounds[document]
        # Now `opened` is the last document boundary within the row, its end included.
        if opened == end or document + 1 == len(bounds) or begin < opened > end - 2 - shortest:
            end = following = opened
        else:
            following = end - 2
        begins.append(begin)
        ends.append(end)
        begin = following
    return np.array(begins, np.int64), np.array(ends, np.int64)
