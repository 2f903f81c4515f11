"""Encode sentences as rows of word pieces, with the mapping from words to pieces and characters."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightbert.data.examples.features import IGNORE_INDEX, Features
from lightbert.errors import InputError, unknown
from lightbert.tasks.example import Example, TaggedSentence
from lightbert.tasks.kinds.tokens.word_offsets import word_offsets
from lightbert.tasks.kinds.tokens.word_windows import word_windows
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
