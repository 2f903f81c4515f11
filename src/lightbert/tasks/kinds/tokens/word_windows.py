"""Split long sentences into overlapping windows so that every word is predicted once."""

from collections.abc import Sequence
from typing import NamedTuple

# A window repeats up to this fraction, 1/4, of the previous one.
_OVERLAP_DIVISOR = 4


class Window(NamedTuple):
    """The words from `start` to `stop` are encoded, those from `first` to `last` predicted; ends are exclusive."""

    start: int
    stop: int
    first: int
    last: int


def word_windows(sizes: Sequence[int], room: int) -> list[Window]:
    """Split a sentence into windows of at most `room` pieces; `sizes` are the pieces per word, at most `room` each.

    Neighbouring windows share up to a quarter of their pieces. Each predicts the half of the shared words nearer to
    its centre, so that every word has context on both sides.
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
        # Leave room in the next window for its first new word.
        shared = min(room // _OVERLAP_DIVISOR, room - sizes[stop])
        following = stop
        while sizes[following - 1] <= shared:
            following -= 1
            shared -= sizes[following]
        last = (following + stop) // 2
        windows.append(Window(start, stop, first, last))
        start, first = following, last
