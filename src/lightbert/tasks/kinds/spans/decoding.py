"""From the outputs of a span head, window by window, to the best stretches of a context."""

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from lightbert.tasks.kinds.spans.pieces import characters

Floats = NDArray[np.floating]
Spans = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""First token, last token and score of candidates."""


class Stretch(NamedTuple):
    """A stretch of a context, in characters."""

    start: int
    end: int
    score: float


def owners(firsts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which of the windows over a context judges each of its tokens: the one that shows most around it (BERT).

    That is the one with the largest smaller side, a longer window and then an earlier one where they are equal.
    """
    count = int((firsts + sizes).max())
    best, owner = np.full(count, -np.inf), np.zeros(count, dtype=np.int64)
    for number, (first, size) in enumerate(zip(firsts.tolist(), sizes.tolist(), strict=True)):
        within = slice(first, first + size)
        left = np.arange(size)
        around = np.minimum(left, left[::-1]) + 0.01 * size
        better = around > best[within]
        best[within][better], owner[within][better] = around[better], number
    return owner


def searched(start: Floats, end: Floats, own: NDArray[np.bool_], max_answer: int, limit: int) -> Spans:
    """The `limit` best pairs of a start that the window owns and an end at most `max_answer` tokens on.

    Deviation: the releases pair the 20 best starts with the 20 best ends; here all pairs compete.
    """
    if not len(start):
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, np.zeros(0)
    reach = min(max_answer, len(end))
    ends = np.concatenate([end.astype(np.float64), np.full(reach - 1, -np.inf)])
    sums = (np.where(own, start.astype(np.float64), -np.inf)[:, None] + sliding_window_view(ends, reach)).ravel()
    top = np.argpartition(sums, -limit)[-limit:] if len(sums) > limit else np.arange(len(sums))
    top = top[sums[top] > -np.inf]
    first, further = np.divmod(top, reach)
    return first, first + further, sums[top]


def kept(
    start: NDArray[np.integer], end: NDArray[np.integer], score: Floats, own: NDArray[np.bool_], max_answer: int
) -> Spans:
    """Those candidates of a beam search that are answers: in the window, owned by it, not backwards, not too long."""
    inside = (start >= 0) & (start < len(own)) & (end < len(own)) & (end >= start) & (end - start < max_answer)
    first, last = start[inside].astype(np.int64), end[inside].astype(np.int64)
    mine = own[first]
    return first[mine], last[mine], score[inside][mine].astype(np.float64)


def stretches(candidates: Spans, context: str, offsets: NDArray[np.int32], n_best: int) -> list[Stretch]:
    """The best candidates as characters, each text once, where its score is highest."""
    first, last, score = candidates
    found: dict[str, Stretch] = {}
    for index in np.lexsort((last, first, -score)):
        start, end = characters(context, offsets, int(first[index]), int(last[index]))
        if start < end:
            found.setdefault(context[start:end], Stretch(start, end, float(score[index])))
        if len(found) == n_best:
            break
    return list(found.values())
