"""Batches of packed rows for prediction: few shapes for texts of any length and number."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.data.packing import PackedRows, pack, packed_rows

Array = NDArray[np.int64]

_NARROWEST = 128
# Texts are [CLS], [SEP] and at least two tokens on average, so that this is hardly ever the limit.
_TOKENS_PER_TEXT = 4


def packed_batches(
    features: Features, pad: int, max_tokens: int, *, positions: int = 0, texts_per_row: int | None = None
) -> Iterator[tuple[Array, PackedRows]]:
    """Pack texts into rows, and yield batches of rows with the numbers of their texts.

    Texts of up to 128 tokens are in rows of 128, longer ones in rows of 256, 512 and so on, but not above `positions`.
    All batches of a width have as many rows as `max_tokens` allows, except the last: the next power of two.
    texts_per_row: the maximum number of texts in a row, a quarter of its tokens by default.
    """
    lengths = features.lengths
    widths = _row_widths(lengths, positions)
    for width in np.unique(widths).tolist():
        members = np.flatnonzero(widths == width)
        limit = texts_per_row or max(1, width // _TOKENS_PER_TEXT)
        packing = pack(lengths[members], width, limit)
        full = max(1, max_tokens // width)
        for first in range(0, packing.rows, full):
            rows = min(full, 1 << (packing.rows - first - 1).bit_length())
            chosen, starts = packing.part(first, first + rows)
            chosen = members[chosen]
            yield chosen, packed_rows(features, chosen, starts, (rows, width), pad, capacity=rows * limit)


def _row_widths(lengths: Array, positions: int) -> Array:
    """The width of the row for each text: 128, doubled until the text fits, at most `positions`."""
    doublings = np.ceil(np.log2(np.maximum(lengths, _NARROWEST) / _NARROWEST)).astype(np.int64)
    widths = _NARROWEST << doublings
    # A text beyond the positions keeps its length, so that the encoder can report it.
    return np.maximum(np.minimum(widths, positions), lengths) if positions else widths
