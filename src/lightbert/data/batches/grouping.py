"""Rows of any length into batches that take the least time: few of them, with little padding."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]


def grouped(lengths: Array, *, least: int, most: int, alike: bool = False) -> Iterator[Array]:
    """Yield the numbers of the rows that go together, short ones first; within a batch the last row is the longest.

    A batch costs its tokens with their padding, and never less than `least`: smaller ones leave the device idle. Among
    all ways to cut the sorted rows where the length changes, the cheapest is found by dynamic programming. A batch of
    more than `most` tokens is cut again. `alike` batches never have any padding.
    """
    if not len(lengths):
        return
    order = np.argsort(lengths, kind="stable")
    widths, ends = _distinct(lengths[order])
    cuts = range(len(widths)) if alike else _cheapest(widths, ends, least)
    start = 0
    for cut in cuts:
        rows = order[start : ends[cut]]
        pieces = -(-len(rows) // max(1, most // int(widths[cut])))
        yield from np.array_split(rows, pieces)
        start = int(ends[cut])


def _distinct(ordered: Array) -> tuple[Array, Array]:
    """The lengths that occur, and how many rows are not longer than each."""
    widths, counts = np.unique(ordered, return_counts=True)
    return widths, np.cumsum(counts)


def _cheapest(widths: Array, ends: Array, least: int) -> list[int]:
    """Return which of the lengths are the longest of a batch."""
    begins = np.concatenate([[0], ends])
    costs, origins = np.zeros(len(widths) + 1), np.zeros(len(widths), dtype=np.int64)
    for last, width in enumerate(widths):
        areas = (ends[last] - begins[: last + 1]) * width
        choices = costs[: last + 1] + np.maximum(areas, least)
        origins[last] = choices.argmin()
        costs[last + 1] = choices[origins[last]]
    cuts, at = [], len(widths)
    while at:
        cuts.append(at - 1)
        at = int(origins[at - 1])
    return cuts[::-1]
