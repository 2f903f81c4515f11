"""A word cache in front of a tokenizer."""

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
    """A tokenizer with a word cache: each distinct word is tokenized once, and encoding is a gather in NumPy.

    Text is split at spaces only, and the words are cached as written, with capitals, accents and punctuation. This
    gives the tokenizer's own ids if it encodes two words separated by a space as the first word followed by the second;
    `splits_at_spaces` checks this property. For other tokenizers, whole sentences are encoded.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: str) -> None:
        self._tokenizer, self._dtype = tokenizer, dtype
        # A literal "[SEP]" in the text is encoded as text; only examples contain special tokens.
        tokenizer.encode_special_tokens = True
        self._by_word = splits_at_spaces(tokenizer)
        self._rows = _Rows()
        self._starts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._lengths: NDArray[np.int64] = np.zeros(0, np.int64)
        self._ids: NDArray[Any] = np.zeros(0, dtype)

    def encode(self, sentences: list[str]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the concatenated ids of sentences without line feeds, and the length of each sentence."""
        if not sentences:
            return np.zeros(0, self._dtype), np.zeros(0, np.int64)
        if not self._by_word:
            return self._encode_whole(sentences)
        words = f" {_SENTENCE_END} ".join(sentences).split(" ")
        rows = np.fromiter(map(self._rows.__getitem__, words), np.int64, len(words))
        self._encode_new_words()
        lengths = self._lengths[rows]
        ends = lengths.cumsum()
        # A token's index in the table: the start of its word plus its offset within the word.
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
    """Maps words to rows of the table; a new word gets the next row and is queued for encoding."""

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
    """Return whether spaces only separate words, as in BERT's tokenizers and the Unigram tokenizers trained here."""
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
