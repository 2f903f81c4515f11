"""Tokens of texts with their character offsets, and conversion between token and character spans."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightbert.tasks.texts import TextEncoder

# Encodings are many times larger than the ids and offsets that are kept, so tokenize in chunks.
_CHUNK = 1024


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
