"""Questions and stretches of their contexts as rows of tokens, and the way back to characters.

As BERT's and ELECTRA's fine-tuning code cuts them: [CLS] question [SEP] window [SEP], a new window every `stride`
tokens until the context is covered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightbert.data.examples.features import Features
from lightbert.errors import InputError
from lightbert.tasks.example import Question
from lightbert.tasks.kinds.spans.location import located
from lightbert.tasks.kinds.spans.pieces import Pieces, covering
from lightbert.tasks.texts import TextEncoder


@dataclass(frozen=True, kw_only=True)
class SpanFeatures(Features):
    """Windows, in the order of their questions, with what leads back from a token to the characters."""

    firsts: NDArray[np.int64]  # [n], the context's token that each window begins with
    contexts: NDArray[np.int64]  # [examples], which of `pieces` is the context
    pieces: Pieces

    def windows(self, example: int) -> range:
        """The rows of one example."""
        first, after = np.searchsorted(self.sources, [example, example + 1]).tolist()
        return range(first, after)

    def sizes(self, rows: range) -> NDArray[np.int64]:
        """How many tokens of the context each row holds: all but the question, [CLS] and the two [SEP]."""
        part = slice(rows.start, rows.stop)
        return self.lengths[part] - self.seconds[part] - 1


def encode(questions: Sequence[Question], encoder: TextEncoder, *, stride: int, max_query: int) -> SpanFeatures:
    """Cut into windows; each context is tokenized once, however many questions it has.

    Targets, when all answers are known: the first answer's start and end within the row and whether the question is
    unanswerable; (0, 0, ·) where the answer is not wholly in the window. An empty context has one window without text.
    """
    if encoder.length < max_query + 4:
        raise InputError(
            f"length = {encoder.length} leaves no room for a context beside a question of {max_query} tokens; "
            f"give a length of at least {max_query + 4}, or a smaller max_query"
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
            for first, size in cut(count, encoder.length - query - 3, stride)
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
        cut=int((np.diff(queries.starts) > max_query)[sources].sum()),
        firsts=firsts,
        contexts=contexts,
        pieces=pieces,
    )


def cut(count: int, room: int, stride: int) -> Iterator[tuple[int, int]]:
    """The first token and the size of each window over `count` tokens."""
    first = 0
    while True:
        size = min(count - first, room)
        yield first, size
        if first + size == count:
            return
        first += min(size, stride)


def _span(question: Question, offsets: NDArray[np.int32]) -> tuple[int, int, int]:
    """First and last token of the first answer, and 1 where there is none; (-1, -1) when no token stands for it."""
    if not question.answers:
        return -1, -1, 1
    text, start = question.answers[0].text, question.answers[0].start
    answer = located(question.context, text, start)
    if answer is None:
        raise InputError(
            f"the answer {text!r} of the question {question.id or question.question!r} is not in its context at "
            f"character {start}; correct it or leave the question out"
        )
    return *covering(offsets, answer.start, answer.start + len(answer.text)), 0


def _targets(
    spans: NDArray[np.int64], firsts: NDArray[np.int64], widths: NDArray[np.int64], seconds: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Token numbers within the context to positions within each row, (0, 0) where the span is not in the window."""
    start, end, impossible = spans.T
    inside = (start >= firsts) & (end < firsts + widths)
    shift = seconds - firsts
    return np.stack([np.where(inside, start + shift, 0), np.where(inside, end + shift, 0), impossible], axis=1)
