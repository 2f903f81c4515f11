"""Sentences as rows of word pieces, and the way back from a row to its words."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightbert.data.examples.features import IGNORE_INDEX, Features
from lightbert.errors import InputError, unknown
from lightbert.tasks.example import Example, Tagged
from lightbert.tasks.kinds.tokens.word_extents import word_extents
from lightbert.tasks.kinds.tokens.word_windows import word_windows
from lightbert.tasks.texts import TextEncoder


@dataclass(frozen=True, kw_only=True)
class WordFeatures(Features):
    """Windows of sentences, with every word's first piece; there is exactly one such place for each word."""

    places: NDArray[np.int64]  # [Σw], a word's first piece in `tokens`
    extents: NDArray[np.int64]  # [Σw, 2], a word's first character in its text, and the one after its last
    words: NDArray[np.int64]  # [examples + 1], where each example's words begin in `places`


@dataclass(frozen=True)
class Word:
    """A word's pieces, at least one, and where it stands in its text."""

    pieces: Sequence[int]
    start: int
    stop: int


def encode_words(
    examples: Sequence[Tagged | Example], encoder: TextEncoder, numbers: Mapping[str, int]
) -> WordFeatures:
    """Encode; a tag's number becomes the target of its word's first piece, all other pieces are ignored.

    A sentence that is too long becomes several windows (`word_windows`). Of a word that alone is too long the first
    pieces are kept. A sentence without words is a row of special tokens.
    """
    room = encoder.length - 2
    rows: list[list[int]] = []
    sources, places, extents, counts = [], [], [], []
    length = cut = 0
    for source, words in enumerate(_words(examples, encoder)):
        for window in word_windows([min(len(word.pieces), room) for word in words], room):
            pieces: list[int] = []
            for number in range(window.start, window.stop):
                if window.first <= number < window.last:
                    # [CLS] stands before the first piece.
                    places.append(length + 1 + len(pieces))
                pieces += words[number].pieces[:room]
            row, _ = encoder.row(pieces)
            rows.append(row)
            sources.append(source)
            length += len(row)
            cut += any(len(word.pieces) > room for word in words[window.start : window.stop])
        extents += [(word.start, word.stop) for word in words]
        counts.append(len(words))
    targets = _targets(examples, numbers, places, length)
    lengths = [len(row) for row in rows]
    features = Features.of(rows, lengths, sources, targets, per_token=True, cut=cut)
    return WordFeatures(
        **vars(features),
        places=np.array(places, np.int64),
        extents=np.array(extents, np.int64).reshape(-1, 2),
        words=np.cumsum([0, *counts], dtype=np.int64),
    )


def text_of(example: Tagged | Example) -> str:
    """What extents count the characters of: the text, or the words joined by single spaces."""
    return example.text if isinstance(example, Example) else " ".join(example.words)


def _words(examples: Sequence[Tagged | Example], encoder: TextEncoder) -> Iterator[list[Word]]:
    """Each word goes through the tokenizer alone, so that a text's words look like those of a sentence in words."""
    sentences = [(text_of(example), _extents(example)) for example in examples]
    distinct = list(dict.fromkeys(text[start:stop] for text, extents in sentences for start, stop in extents))
    known = {word: found.ids for word, found in zip(distinct, encoder.pieces(distinct), strict=True)}
    for text, extents in sentences:
        # A word of control characters has no pieces, but has its tag.
        yield [Word(known[text[start:stop]] or [_unknown_piece(encoder)], start, stop) for start, stop in extents]


def _extents(example: Tagged | Example) -> list[tuple[int, int]]:
    if isinstance(example, Tagged):
        stops = itertools.accumulate(len(word) + 1 for word in example.words)
        return [(stop - len(word) - 1, stop - 1) for word, stop in zip(example.words, stops, strict=True)]
    if example.text_b is not None:
        raise InputError(f"words are tagged in one text, not in a pair; leave out {example.text_b!r}")
    return word_extents(example.text)


def _unknown_piece(encoder: TextEncoder) -> int:
    found = (encoder.tokenizer.token_to_id(name) for name in ("[UNK]", "<unk>"))
    return next((piece for piece in found if piece is not None), encoder.specials.mask)


def _targets(
    examples: Sequence[Tagged | Example], numbers: Mapping[str, int], places: list[int], length: int
) -> NDArray[np.int64] | None:
    tags: list[str] = []
    for example in examples:
        if isinstance(example, Example) or example.tags is None:
            return None
        if len(example.tags) != len(example.words):
            raise InputError(f"{len(example.tags)} tags for {len(example.words)} words; each word needs one")
        tags += example.tags
    for tag in tags:
        if tag not in numbers:
            raise unknown("tag", tag, numbers)
    targets = np.full(length, IGNORE_INDEX, np.int64)
    targets[places] = [numbers[tag] for tag in tags]
    return targets if examples else None
