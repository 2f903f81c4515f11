"""Sentences that are longer than the model, cut into overlapping windows so that every word is judged once."""

from collections.abc import Sequence
from typing import NamedTuple

# The share of a window that repeats words of the one before.
_OVERLAP = 4


class Window(NamedTuple):
    """The words from `start` to `stop` are read, those from `first` to `last` are judged; both ends are exclusive."""

    start: int
    stop: int
    first: int
    last: int


def word_windows(sizes: Sequence[int], room: int) -> list[Window]:
    """Cut words of so many pieces, none more than `room`, into windows of at most `room` pieces.

    Neighbours share up to a quarter of their pieces. Each judges the half of the shared words that is nearer to its own
    middle, so that a word at the border is seen with some context on both sides.
    """
    windows: list[Window] = []
    start = first = 0
    while True:
        stop, used = start, 0
        while stop < len(sizes) and used + sizes[stop] <= room:
            used += sizes[stop]
            stop += 1
        if stop == len(sizes):
            return [*windows, Window(start, stop, first, stop)]
        # The next window must have room for its first new word.
        shared = min(room // _OVERLAP, room - sizes[stop])
        following = stop
        while sizes[following - 1] <= shared:
            following -= 1
            shared -= sizes[following]
        last = (following + stop) // 2
        windows.append(Window(start, stop, first, last))
        start, first = following, last
