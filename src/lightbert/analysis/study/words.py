"""Occurrences of a word in texts, and how much its dynamic kernels depend on the context (ConvBERT Fig. 1)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from lightbert.analysis.study.rows import RowEncoder
from lightbert.data.masking import word_parts
from lightbert.errors import InputError

_MOST_WORDS = 3


@dataclass(frozen=True)
class Occurrence:
    """A word in a text: the number of the text, and the place of the word's first token in its row."""

    text: int
    place: int


def find_words(
    rows: Sequence[Sequence[int]], encoder: RowEncoder, words: Sequence[str] = ()
) -> dict[str, list[Occurrence]]:
    """The occurrences of words in rows with special tokens; without `words`, of the most frequent repeated ones."""
    continues = word_parts(encoder.tokenizer).tolist()
    if not words:
        return _repeated(rows, encoder, continues)
    found = {}
    for word in words:
        pieces = encoder.pieces(word)
        found[word] = [
            Occurrence(text, place)
            for text, row in enumerate(rows)
            for place in range(1, len(row) - len(pieces))
            if pieces and [*row[place : place + len(pieces)]] == pieces and not continues[row[place + len(pieces)]]
        ]
        if not found[word]:
            raise InputError(f"the word {word!r} must occur in the texts, but doesn't; give a text that contains it")
    return found


def _repeated(
    rows: Sequence[Sequence[int]], encoder: RowEncoder, continues: Sequence[bool]
) -> dict[str, list[Occurrence]]:
    places: dict[int, list[Occurrence]] = {}
    for text, row in enumerate(rows):
        for place in range(1, len(row) - 1):
            if not continues[row[place]] and not continues[row[place + 1]]:
                places.setdefault(row[place], []).append(Occurrence(text, place))
    names = {token: encoder.tokens([token])[0].removeprefix("▁") for token in places}
    counts = Counter(
        {token: len(found) for token, found in places.items() if len(found) > 1 and names[token][:1].isalpha()}
    )
    return {names[token]: places[token] for token, _ in counts.most_common(_MOST_WORDS)}


def kernel_overlap(kernels: Tensor) -> float:
    """The mean overlap of each pair of kernels [H, N, K], averaged over heads: 1 if they are equal."""
    count = kernels.shape[1]
    rooted = kernels.sqrt()
    total = (rooted @ rooted.transpose(1, 2)).sum(dim=(1, 2)) - kernels.sum(dim=(1, 2))
    return float((total / (count * (count - 1))).mean())
