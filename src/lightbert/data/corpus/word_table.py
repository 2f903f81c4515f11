"""Encodes text by looking up words that were seen before."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from lightbert.data.corpus.vocabulary import SPECIALS, unigram

_MAX_WORDS = 1 << 20
_MAX_CHARACTERS = 1 << 25
_SENTENCE_END = "\n"


class WordTable:
    """A tokenizer with a memory: each distinct word goes through it once, the rest is a gather in numpy.

    Text is cut at spaces only, and the words are remembered as they stand, with capitals, accents and punctuation. That
    gives the tokenizer's own ids exactly when encoding two words with a space between them is encoding one, then the
    other: `splits_at_spaces` says for which tokenizers this holds. For all others every sentence is encoded whole.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: str) -> None:
        self._tokenizer, self._dtype = tokenizer, dtype
        # A "[SEP]" that somebody wrote is text; only examples may hold real ones.
        tokenizer.encode_special_tokens = True
        self._by_word = splits_at_spaces(tokenizer)
        self._rows = _Rows()
        self._starts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._lengths: NDArray[np.int64] = np.zeros(0, np.int64)
        self._ids: NDArray[Any] = np.zeros(0, dtype)

    def encode(self, sentences: list[str]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of all sentences, which have no line feeds, in one piece, and the length of each."""
        if not sentences:
            return np.zeros(0, self._dtype), np.zeros(0, np.int64)
        if not self._by_word:
            return self._encode_whole(sentences)
        words = f" {_SENTENCE_END} ".join(sentences).split(" ")
        rows = np.fromiter(map(self._rows.__getitem__, words), np.int64, len(words))
        self._encode_new_words()
        lengths = self._lengths[rows]
        ends = lengths.cumsum()
        # A token's place in the table: where its word starts there, plus how far into the word it is.
        places = np.arange(ends[-1]) + np.repeat(self._starts[rows] - (ends - lengths), lengths)
        ids = self._ids[places]
        sentence_ends = np.append(ends[rows == self._rows[_SENTENCE_END]], len(ids))
        if len(self._rows) > _MAX_WORDS or self._rows.characters > _MAX_CHARACTERS:
            self._clear()
        return ids, np.diff(sentence_ends, prepend=0)

    def _encode_whole(self, texts: list[str]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        encoded = [each.ids for each in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return np.fromiter((token for ids in encoded for token in ids), self._dtype, lengths.sum()), lengths

    def _encode_new_words(self) -> None:
        if not self._rows.new:
            return
        ids, lengths = self._encode_whole(self._rows.new)
        self._starts = np.append(self._starts, len(self._ids) + lengths.cumsum() - lengths)
        self._lengths = np.append(self._lengths, lengths)
        self._ids = np.append(self._ids, ids)
        self._rows.new.clear()

    def _clear(self) -> None:
        self._rows = _Rows()
        self._starts, self._lengths, self._ids = self._starts[:0], self._lengths[:0], self._ids[:0]


class _Rows(dict[str, int]):
    """Word -> row of the table; a new word gets the next row and is noted for encoding."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []
        self.characters = 0

    def __missing__(self, word: str) -> int:
        self[word] = row = len(self)
        self.new.append(word)
        self.characters += len(word)
        return row


def splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Tell whether a space separates words and leaves no other trace, as with BERT's tokenizers and our Unigram."""
    parts = json.loads(tokenizer.to_str())
    if any(not token["special"] for token in parts["added_tokens"]):
        return False
    normalizer, pre_tokenizer = parts["normalizer"], parts["pre_tokenizer"]
    if (pre_tokenizer or {}).get("type") == "BertPreTokenizer":
        return normalizer is None or normalizer["type"] == "BertNormalizer"
    ours = (
        json.loads(unigram([(name, 0.0) for name in SPECIALS], lowercase=lowercase).to_str())
        for lowercase in (True, False)
    )
    return any((each["normalizer"], each["pre_tokenizer"]) == (normalizer, pre_tokenizer) for each in ours)
