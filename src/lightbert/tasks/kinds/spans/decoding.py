"""Decode the outputs of a span head, window by window, to the best spans of a context."""

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from lightbert.tasks.kinds.spans.pieces import char_span

Floats = NDArray[np.floating]
Candidates = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""First token, last token and score of each candidate."""


class CharSpan(NamedTuple):
    """A span of a context in characters, with its score."""

    start: int
    end: int
    score: float


def owning_windows(firsts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The window that decides about each token of a context: the one with the most context around it (BERT).

    That is the largest minimum of left and right context; ties go to the longer, then to the earlier window.
    """
    count = int((firsts + sizes).max())
    best, owner = np.full(count, -np.inf), np.zeros(count, dtype=np.int64)
    for index, (first, size) in enumerate(zip(firsts.tolist(), sizes.tolist(), strict=True)):
        within = slice(first, first + size)
        left = np.arange(size)
        around = np.minimum(left, left[::-1]) + 0.01 * size
        better = around > best[within]
        best[within][better], owner[within][better] = around[better], index
    return owner


def search_spans(start: Floats, end: Floats, own: NDArray[np.bool_], max_answer: int, limit: int) -> Candidates:
    """The `limit` best spans of at most `max_answer` tokens that start at a token the window owns.

    Deviation: the released code pairs the 20 best starts with the 20 best ends; here all pairs are compared.
    """
    if not len(start):
        none = np.zeros(0, dtype=np.int64)
        return none, none, np.zeros(0)
    width = min(max_answer, len(end))
    ends = np.concatenate([end.astype(np.float64), np.full(width - 1, -np.inf)])
    sums = (np.where(own, start.astype(np.float64), -np.inf)[:, None] + sliding_window_view(ends, width)).ravel()
    top = np.argpartition(sums, -limit)[-limit:] if len(sums) > limit else np.arange(len(sums))
    top = top[sums[top] > -np.inf]
    first, length = np.divmod(top, width)
    return first, first + length, sums[top]


def filter_spans(
    start: NDArray[np.integer], end: NDArray[np.integer], score: Floats, own: NDArray[np.bool_], max_answer: int
) -> Candidates:
    """The valid candidates of a beam search: start <= end, inside the window and owned by it, not too long."""
    inside = (start >= 0) & (start < len(own)) & (end < len(own)) & (end >= start) & (end - start < max_answer)
    first, last = start[inside].astype(np.int64), end[inside].astype(np.int64)
    owned = own[first]
    return first[owned], last[owned], score[inside][owned].astype(np.float64)


def best_spans(candidates: Candidates, context: str, offsets: NDArray[np.int32], n_best: int) -> list[CharSpan]:
    """The best candidates in characters; each text occurs once, with its highest score."""
    first, last, score = candidates
    found: dict[str, CharSpan] = {}
    for index in np.lexsort((last, first, -score)):
        start, end = char_span(context, offsets, int(first[index]), int(last[index]))
        if start < end:
            found.setdefault(context[start:end], CharSpan(start, end, float(score[index])))
        if len(found) == n_best:
            break
    return list(found.values())
