"""Tokens of texts and the characters that they stand for, both ways."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightbert.tasks.texts import TextEncoder

# The library's encodings are many times larger than the numbers that are taken from them.
_TEXTS_AT_ONCE = 1024


@dataclass(frozen=True)
class Pieces:
    """Tokens of texts, one text after another, and the characters that each stands for."""

    ids: NDArray[np.int32]  # [Σp]
    offsets: NDArray[np.int32]  # [Σp, 2] first character, one after the last
    starts: NDArray[np.int64]  # [texts + 1]

    @classmethod
    def of(cls, texts: Sequence[str], encoder: TextEncoder) -> "Pieces":
        """Tokenize, each text once."""
        ids, offsets, lengths = [np.zeros(0, np.int32)], [np.zeros((0, 2), np.int32)], [0]
        for at in range(0, len(texts), _TEXTS_AT_ONCE):
            for encoding in encoder.pieces(texts[at : at + _TEXTS_AT_ONCE]):
                ids.append(np.array(encoding.ids, dtype=np.int32))
                offsets.append(np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2))
                lengths.append(len(ids[-1]))
        return cls(np.concatenate(ids), np.concatenate(offsets), np.cumsum(lengths, dtype=np.int64))

    def __getitem__(self, text: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The ids and the offsets of one text."""
        part = slice(self.starts[text], self.starts[text + 1])
        return self.ids[part], self.offsets[part]


def covering(offsets: NDArray[np.int32], start: int, end: int) -> tuple[int, int]:
    """The first and the last token that stand for any of the characters; (-1, -1) when none does."""
    touched = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(touched[0]), int(touched[-1])) if len(touched) else (-1, -1)


def characters(context: str, offsets: NDArray[np.int32], first: int, last: int) -> tuple[int, int]:
    """The characters that the tokens from `first` to `last` stand for, without spaces around them.

    Accents and control characters that the tokenizer dropped behind the last token belong to it.
    """
    start, end = int(offsets[first, 0]), int(offsets[last, 1])
    following = int(offsets[last + 1, 0]) if last + 1 < len(offsets) else len(context)
    while end < following and unicodedata.category(context[end])[0] in "MC" and not context[end].isspace():
        end += 1
    # A piece of SentencePiece's kind may cover the space before its word.
    text = context[start:end]
    return start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
