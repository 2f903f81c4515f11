"""Grouping rows of any length into batches with little padding, without torch."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbert.data.examples.features import Features

Array = NDArray[np.int64]


class PaddedRows(NamedTuple):
    """Rows of one batch as arrays [B, T]."""

    ids: Array
    mask: NDArray[np.bool_]
    segments: Array
    at: Array
    """The index of each token in the features; any valid one in the padding."""


def padded_rows(features: Features, chosen: Array, length: int, pad: int) -> PaddedRows:
    """Pad the chosen rows to `length`."""
    places = np.arange(length)
    mask = places < features.lengths[chosen, None]  # [B, T]
    # After the end of a row any valid index can be used, because the values are masked.
    at = np.minimum(features.starts[chosen, None] + places, max(len(features.tokens) - 1, 0))
    return PaddedRows(
        ids=np.where(mask, features.tokens[at], pad).astype(np.int64),
        mask=mask,
        segments=(mask & (places >= features.seconds[chosen, None])).astype(np.int64),
        at=at,
    )


def group_by_length(
    lengths: Array, *, min_tokens: int, max_tokens: int, equal_lengths: bool = False
) -> Iterator[Array]:
    """Group rows into few batches with little padding, and yield the row numbers of each batch, shortest rows first.

    The last row of a batch is its longest. The cost of a batch is its number of tokens, padding included, and at least
    `min_tokens`, because smaller batches leave the device idle. Dynamic programming finds the cheapest way to split the
    sorted rows where the length changes. A batch of more than `max_tokens` tokens is split further. With
    `equal_lengths`, all rows of a batch have the same length, so there is no padding.
    """
    if not len(lengths):
        return
    order = np.argsort(lengths, kind="stable")
    widths, ends = _distinct(lengths[order])
    cuts = range(len(widths)) if equal_lengths else _cheapest_splits(widths, ends, min_tokens)
    start = 0
    for cut in cuts:
        rows = order[start : ends[cut]]
        pieces = -(-len(rows) // max(1, max_tokens // int(widths[cut])))
        yield from np.array_split(rows, pieces)
        start = int(ends[cut])


def _distinct(ordered: Array) -> tuple[Array, Array]:
    """Return the distinct lengths, and for each the number of rows that are not longer."""
    widths, counts = np.unique(ordered, return_counts=True)
    return widths, np.cumsum(counts)


def _cheapest_splits(widths: Array, ends: Array, min_tokens: int) -> list[int]:
    """Return which of the lengths are the maximum length of a batch."""
    begins = np.concatenate([[0], ends])
    costs, origins = np.zeros(len(widths) + 1), np.zeros(len(widths), dtype=np.int64)
    for last, width in enumerate(widths):
        areas = (ends[last] - begins[: last + 1]) * width
        choices = costs[: last + 1] + np.maximum(areas, min_tokens)
        origins[last] = choices.argmin()
        costs[last + 1] = choices[origins[last]]
    cuts, at = [], len(widths)
    while at:
        cuts.append(at - 1)
        at = int(origins[at - 1])
    return cuts[::-1]
