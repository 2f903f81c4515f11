"""Encode questions with sliding windows over their contexts.

As in BERT's and ELECTRA's fine-tuning code: [CLS] question [SEP] window [SEP], with a new window every `stride` tokens
until the context is covered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightbert.data.examples.features import Features
from lightbert.errors import InputError
from lightbert.tasks.example import Question
from lightbert.tasks.kinds.spans.location import locate_answer
from lightbert.tasks.kinds.spans.pieces import Pieces, token_span
from lightbert.tasks.texts import TextEncoder


@dataclass(frozen=True, kw_only=True)
class SpanFeatures(Features):
    """Windows in the order of their questions, with the mapping from tokens to characters of the context."""

    firsts: NDArray[np.int64]  # [n], the index in the context of each window's first token
    contexts: NDArray[np.int64]  # [examples], the index of the context in `pieces`
    pieces: Pieces

    def windows(self, example: int) -> range:
        """The rows of one example."""
        first, after = np.searchsorted(self.sources, [example, example + 1]).tolist()
        return range(first, after)

    def sizes(self, rows: range) -> NDArray[np.int64]:
        """The number of context tokens in each row: all but the question, [CLS] and the two [SEP]."""
        part = slice(rows.start, rows.stop)
        return self.lengths[part] - self.seconds[part] - 1


def encode(questions: Sequence[Question], encoder: TextEncoder, *, stride: int, max_query: int) -> SpanFeatures:
    """Encode questions; each context is tokenized once, however many questions it has.

    Targets are set if all answers are known: start and end of the first answer within the row, and whether the question
    is unanswerable. Start and end are 0 if the window doesn't contain the whole answer.
    An empty context has one window.
    """
    if encoder.length < max_query + 4:
        raise InputError(
            f"length must be >= answers.max_query + 4 = {max_query + 4} to leave room for a context, got "
            f"{encoder.length}; raise length, or fine-tune with a lower answers.max_query"
        )
    numbers: dict[str, int] = {}
    contexts = np.array([numbers.setdefault(each.context, len(numbers)) for each in questions], dtype=np.int64)
    pieces = Pieces.of(list(numbers), encoder)
    queries = Pieces.of([each.question for each in questions], encoder)

    sizes = np.minimum(np.diff(queries.starts), max_query)
    counts = np.diff(pieces.starts)[contexts]
    layout = np.array(
        [
            (source, first, size)
            for source, (query, count) in enumerate(zip(sizes.tolist(), counts.tolist(), strict=True))
            for first, size in split_windows(count, encoder.length - query - 3, stride)
        ],
        dtype=np.int64,
    ).reshape(-1, 3)
    sources, firsts, widths = layout.T.copy()
    seconds = sizes[sources] + 2
    starts = np.concatenate([[0], np.cumsum(seconds + widths + 1)])

    tokens = np.full(starts[-1], encoder.specials.sep, dtype=np.int32)
    tokens[starts[:-1]] = encoder.specials.cls
    for row, (source, first, width) in enumerate(layout.tolist()):
        begin, second = starts[row], starts[row] + seconds[row]
        tokens[begin + 1 : second - 1] = queries[source][0][: sizes[source]]
        tokens[second : second + width] = pieces[contexts[source]][0][first : first + width]

    known = all(each.answers is not None for each in questions)
    spans = (
        np.array([_span(each, pieces[at][1]) for each, at in zip(questions, contexts, strict=True)]) if known else None
    )
    return SpanFeatures(
        tokens=tokens,
        starts=starts,
        seconds=seconds,
        sources=sources,
        targets=None if spans is None else _targets(spans.reshape(-1, 3)[sources], firsts, widths, seconds),
        cut=int((np.diff(queries.starts) > max_query).sum()),
        firsts=firsts,
        contexts=contexts,
        pieces=pieces,
    )


def split_windows(count: int, room: int, stride: int) -> Iterator[tuple[int, int]]:
    """Yield the first token and the size of each window over `count` tokens."""
    first = 0
    while True:
        size = min(count - first, room)
        yield first, size
        if first + size == count:
            return
        first += min(size, stride)


def _span(question: Question, offsets: NDArray[np.int32]) -> tuple[int, int, int]:
    """First and last token of the first answer, (-1, -1) if no token overlaps it, and 1 if there is no answer."""
    if not question.answers:
        return -1, -1, 1
    text, start = question.answers[0].text, question.answers[0].start
    answer = locate_answer(question.context, text, start)
    if answer is None:
        raise InputError(
            f"the answer {text!r} of the question {question.id or question.question!r} must occur in its context at "
            f"character {start}; correct it or remove the question"
        )
    return *token_span(offsets, answer.start, answer.start + len(answer.text)), 0


def _targets(
    spans: NDArray[np.int64], firsts: NDArray[np.int64], widths: NDArray[np.int64], seconds: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Convert token spans of the context to positions in each row; (0, 0) if the span isn't inside the window."""
    start, end, impossible = spans.T
    inside = (start >= firsts) & (end < firsts + widths)
    shift = seconds - firsts
    return np.stack([np.where(inside, start + shift, 0), np.where(inside, end + shift, 0), impossible], axis=1)
