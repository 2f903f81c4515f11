"""Encode questions with sliding windows over their contexts.

As in BERT's and ELECTRA's fine-tuning code: [CLS] question [SEP] window [SEP], with a new window every `stride` tokens
until the context is covered.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.errors import InputError
from lightbert.tasks.example import Answer, Question
from lightbert.tasks.texts import TextEncoder


@dataclass(frozen=True)
class Pieces:
    """The concatenated tokens of several texts, with character offsets."""

    ids: NDArray[np.int32]  # [Σp]
    offsets: NDArray[np.int32]  # [Σp, 2] first character, end (exclusive)
    starts: NDArray[np.int64]  # [texts + 1]

    @classmethod
    def of(cls, texts: Sequence[str], encoder: TextEncoder) -> "Pieces":
        """Tokenize texts."""
        ids, offsets, lengths = [np.zeros(0, np.int32)], [np.zeros((0, 2), np.int32)], [0]
        for at in range(0, len(texts), _CHUNK):
            for encoding in encoder.pieces(texts[at : at + _CHUNK]):
                ids.append(np.array(encoding.ids, dtype=np.int32))
                offsets.append(np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2))
                lengths.append(len(ids[-1]))
        return cls(np.concatenate(ids), np.concatenate(offsets), np.cumsum(lengths, dtype=np.int64))

    def __getitem__(self, text: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The ids and the offsets of one text."""
        part = slice(self.starts[text], self.starts[text + 1])
        return self.ids[part], self.offsets[part]


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


def locate_answer(context: str, text: str, start: int) -> Answer | None:
    """The answer as it occurs in the context near `start`, or None if it doesn't.

    As tolerant as BERT's and ELECTRA's data readers: the answer may be anywhere inside the words that overlap the
    given characters; case and white space are ignored. The match nearest to `start` is returned.
    """
    if not text.strip() or not 0 <= start < len(context):
        return None
    if context.startswith(text, start):
        return Answer(text, start)
    first, last = _extend_to_words(context, start, min(start + len(text), len(context)))
    pattern = re.compile(r"\s+".join(re.escape(word) for word in text.split()), re.IGNORECASE)
    found = min(pattern.finditer(context, first, last), key=lambda match: abs(match.start() - start), default=None)
    return None if found is None else Answer(found[0], found.start())


def _extend_to_words(context: str, start: int, end: int) -> tuple[int, int]:
    """Extend a span to whole words."""
    while start > 0 and not context[start - 1].isspace():
        start -= 1
    while end < len(context) and not context[end].isspace():
        end += 1
    return start, end


# Encodings are many times larger than the ids and offsets that are kept, so tokenize in chunks.
_CHUNK = 1024


def token_span(offsets: NDArray[np.int32], start: int, end: int) -> tuple[int, int]:
    """The first and last token that overlap the characters; (-1, -1) if there is none."""
    overlapping = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(overlapping[0]), int(overlapping[-1])) if len(overlapping) else (-1, -1)


def char_span(context: str, offsets: NDArray[np.int32], first: int, last: int) -> tuple[int, int]:
    """The characters of the tokens from `first` to `last`, without surrounding white space.

    Accents and control characters that the tokenizer dropped after the last token are included.
    """
    start, end = int(offsets[first, 0]), int(offsets[last, 1])
    following = int(offsets[last + 1, 0]) if last + 1 < len(offsets) else len(context)
    while end < following and unicodedata.category(context[end])[0] in "MC" and not context[end].isspace():
        end += 1
    # The offsets of a SentencePiece token may include the space before its word.
    text = context[start:end]
    return start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
