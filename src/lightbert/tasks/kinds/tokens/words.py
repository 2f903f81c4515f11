"""Encode sentences as rows of word pieces, with the mapping from words to pieces and characters."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import IGNORE_INDEX, Features
from lightbert.errors import InputError, unknown
from lightbert.tasks.example import Example, TaggedSentence
from lightbert.tasks.texts import TextEncoder


@dataclass(frozen=True, kw_only=True)
class WordFeatures(Features):
    """Windows of sentences, with the position of each word's first piece."""

    first_pieces: NDArray[np.int64]  # [Σw], the index in `tokens` of each word's first piece
    offsets: NDArray[np.int64]  # [Σw, 2], start and end (exclusive) of each word in its text
    words: NDArray[np.int64]  # [examples + 1], where the words of each example begin in `first_pieces`


@dataclass(frozen=True)
class Word:
    """The pieces of a word, at least one, and its offsets in the text."""

    pieces: Sequence[int]
    start: int
    stop: int


def encode_words(
    examples: Sequence[TaggedSentence | Example], encoder: TextEncoder, numbers: Mapping[str, int]
) -> WordFeatures:
    """Encode sentences; the target of a word's first piece is the index of its tag, other pieces are ignored.

    A sentence that is too long becomes several windows (`word_windows`). A single word that is too long is truncated.
    A sentence without words is a row of special tokens.
    """
    room = encoder.length - 2
    rows: list[list[int]] = []
    sources, first_pieces, offsets, counts = [], [], [], []
    length = cut = 0
    for source, words in enumerate(_words(examples, encoder)):
        for window in word_windows([min(len(word.pieces), room) for word in words], room):
            pieces: list[int] = []
            for number in range(window.start, window.stop):
                if window.first <= number < window.last:
                    # + 1 for [CLS].
                    first_pieces.append(length + 1 + len(pieces))
                pieces += words[number].pieces[:room]
            row, _ = encoder.row(pieces)
            rows.append(row)
            sources.append(source)
            length += len(row)
        cut += any(len(word.pieces) > room for word in words)
        offsets += [(word.start, word.stop) for word in words]
        counts.append(len(words))
    targets = _targets(examples, numbers, first_pieces, length)
    lengths = [len(row) for row in rows]
    features = Features.of(rows, lengths, sources, targets, per_token=True, cut=cut)
    return WordFeatures(
        **vars(features),
        first_pieces=np.array(first_pieces, np.int64),
        offsets=np.array(offsets, np.int64).reshape(-1, 2),
        words=np.cumsum([0, *counts], dtype=np.int64),
    )


def text_of(example: TaggedSentence | Example) -> str:
    """The text that offsets refer to: the text itself, or the words joined by single spaces."""
    return example.text if isinstance(example, Example) else " ".join(example.words)


def _words(examples: Sequence[TaggedSentence | Example], encoder: TextEncoder) -> Iterator[list[Word]]:
    """Tokenize each word separately, so that a plain text is encoded like a sentence given as words."""
    sentences = [(text_of(example), _offsets(example)) for example in examples]
    distinct = list(dict.fromkeys(text[start:stop] for text, offsets in sentences for start, stop in offsets))
    ids_of = {word: found.ids for word, found in zip(distinct, encoder.pieces(distinct), strict=True)}
    for text, offsets in sentences:
        # A word of control characters has no pieces, but still needs a prediction.
        yield [Word(ids_of[text[start:stop]] or [_unknown_piece(encoder)], start, stop) for start, stop in offsets]


def _offsets(example: TaggedSentence | Example) -> list[tuple[int, int]]:
    if isinstance(example, TaggedSentence):
        stops = itertools.accumulate(len(word) + 1 for word in example.words)
        return [(stop - len(word) - 1, stop - 1) for word, stop in zip(example.words, stops, strict=True)]
    if example.text_b is not None:
        raise InputError(f"tagging requires a single text, got a pair; remove {example.text_b!r}")
    return word_offsets(example.text)


def _unknown_piece(encoder: TextEncoder) -> int:
    found = (encoder.tokenizer.token_to_id(name) for name in ("[UNK]", "<unk>"))
    return next((piece for piece in found if piece is not None), encoder.specials.mask)


def _targets(
    examples: Sequence[TaggedSentence | Example], numbers: Mapping[str, int], first_pieces: list[int], length: int
) -> NDArray[np.int64] | None:
    tags: list[str] = []
    for example in examples:
        if isinstance(example, Example) or example.tags is None:
            return None
        if len(example.tags) != len(example.words):
            raise InputError(
                f"there must be one tag per word, got {len(example.tags)} tags for {len(example.words)} words"
            )
        tags += example.tags
    for tag in tags:
        if tag not in numbers:
            raise unknown("tag", tag, numbers)
    targets = np.full(length, IGNORE_INDEX, np.int64)
    targets[first_pieces] = [numbers[tag] for tag in tags]
    return targets if examples else None


_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CHUNK = re.compile(rf"—+|-{{2,}}|\.{{3,}}|…|[{_IDEOGRAPHS}]|(?:(?!—|--|\.{{3}}|…)[^\s{_IDEOGRAPHS}])+")
"""Chunks that are split further only at their ends. Long dashes, ellipses and (as in BERT) ideographs are chunks."""

_MARKS = frozenset(",;:!?¡¿()[]{}<>\"'`“”„‘’‚«»‹›、。，；：！？（）「」『』《》")
_DOUBLED = ("''", "``")
_POSSESSIVE = ("'s", "’s")
_ELISION = re.compile(r"['’](?:\d\ds?|s)\b")
"""An apostrophe that isn't an opening quote: '90s, 's."""

_TITLES = "mr|mrs|ms|messrs|dr|prof|gen|col|maj|capt|lt|sgt|adm|sen|rep|gov|pres|rev|hon|st|mt|jr|sr"
_SHORTENED = "inc|corp|ltd|co|bros|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|vs|etc|cf"
_ABBREVIATION = re.compile(rf"(?:[^\W\d_]{{1,2}}\.-?)+[^\W\d_]{{1,2}}|(?i:{_TITLES}|{_SHORTENED})")
"""The part before the last dot of U.N., Ph.D., J.-P., or of a known abbreviation."""
_MAX_ABBREVIATION = 40
"""Characters of an abbreviation; bounds the regular expression search."""
_CONTINUATION = re.compile(r"[,;:]|['’][sS]\b")
_NEXT_WORD = re.compile(r"[\"'”’»)\]}>]*\s+(\w)")


def word_offsets(text: str) -> list[tuple[int, int]]:
    """The start and end of each word; together the words cover all of the text except white space.

    Quotes, brackets and , ; : ! ? are separate words at the ends of a word, and part of it inside. So is a full stop,
    unless it belongs to an abbreviation. A possessive 's is a separate word.
    """
    return [offset for chunk in _CHUNK.finditer(text) for offset in _parts(text, *chunk.span())]


def _parts(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    while size := _leading_mark(text, start, stop):
        yield start, start + size
        start += size
    after, letter = [], next((index for index in range(start, stop) if text[index].isalnum()), stop)
    while size := _trailing_mark(text, start, stop, letter):
        after.append((stop - size, stop))
        stop -= size
    yield start, stop
    yield from reversed(after)


def _leading_mark(text: str, start: int, stop: int) -> int:
    """The length of the punctuation mark before a word; 0 if there is no mark or no word after it."""
    if text[start] not in _MARKS or _ELISION.match(text, start, stop):
        return 0
    size = 2 if text.startswith(_DOUBLED, start, stop) else 1
    return size if size < stop - start else 0


def _trailing_mark(text: str, start: int, stop: int, letter: int) -> int:
    """The length of the punctuation mark or 's after a word; 0 if there is no mark or no word before it.

    letter: the position of the first letter or digit.
    """
    last, pair = text[stop - 1], text[max(start, stop - 2) : stop].lower()
    if pair in _DOUBLED or pair in _POSSESSIVE:
        size = 2
    else:
        size = int(last in _MARKS or (last == "." and letter < stop and _is_full_stop(text, start, stop - 1)))
    return size if size < stop - start else 0


def _is_full_stop(text: str, start: int, stop: int) -> bool:
    """Whether the dot at `stop` ends a sentence instead of an abbreviation.

    A capitalised word with a dot is an abbreviation if the next word begins with a lower-case letter.
    """
    initial = stop - start == 1 and text[start].isupper()
    short = stop - start <= _MAX_ABBREVIATION and _ABBREVIATION.fullmatch(text, start, stop)
    if initial or short or _CONTINUATION.match(text, stop + 1):
        return False
    following = _NEXT_WORD.match(text, stop + 1)
    return not (following is not None and following[1].islower() and text[start].isupper())


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
