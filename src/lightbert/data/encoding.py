"""Encodes documents: splits sentences, separates held-out documents and drops empty ones.

Streams of documents are split into parts that become shards, and these into chunks for the workers. The splits depend
on the text only, so the output bytes are the same for any number of workers, after any crash, and for a datatrove task
that reads the same files.

- Stream r of N reads sources r, r + N, r + 2N, … in sequence, as task r of N does in datatrove.
- A part ends with the document that reaches `characters`; it becomes a train shard and a held-out shard.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from lightbert.data import tokenizer
from lightbert.data.sentences import split_sentences
from lightbert.data.shards import Block, Width
from lightbert.data.sources import Source
from lightbert.data.tokenizer import SPECIALS, unigram
from lightbert.processes import map_in_order

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
        encoded = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
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
    trained_here = (
        json.loads(unigram([(name, 0.0) for name in SPECIALS], lowercase=lowercase).to_str())
        for lowercase in (True, False)
    )
    return (normalizer, pre_tokenizer) in ((other["normalizer"], other["pre_tokenizer"]) for other in trained_here)


Sentences = Literal["line", "split"]


class EncodedDocuments(NamedTuple):
    """Encoded documents in their original order; `empty` counts the documents without tokens."""

    train: Block
    held_out: Block
    empty: int


class DocumentEncoder:
    """Encodes lists of documents. The result for a document depends on that document only."""

    def __init__(self, tokenizer: Tokenizer, sentences: Sentences, held_out: float) -> None:
        self._table = WordTable(tokenizer, width(tokenizer))
        self._split, self._held_out = sentences == "split", held_out

    def __call__(self, documents: list[str]) -> EncodedDocuments:
        """Encode documents whose lines are separated by line feeds."""
        clean = [replace_surrogates(document) for document in documents]
        held_out_flags = [is_held_out(document, self._held_out) for document in clean]
        train = self._encode([document for document, held in zip(clean, held_out_flags, strict=True) if not held])
        held_out = self._encode([document for document, held in zip(clean, held_out_flags, strict=True) if held])
        return EncodedDocuments(train, held_out, len(documents) - len(train.documents) - len(held_out.documents))

    def _encode(self, documents: list[str]) -> Block:
        sentences = [self._sentences(document) for document in documents]
        owners = np.repeat(np.arange(len(documents)), [*map(len, sentences)])
        ids, lengths = self._table.encode([sentence for document in sentences for sentence in document])
        real = lengths > 0
        counts = np.bincount(owners[real], minlength=len(documents))
        return Block(ids, lengths[real].astype(np.uint32), counts[counts > 0].astype(np.uint32))

    def _sentences(self, document: str) -> list[str]:
        lines = document.splitlines()
        return [sentence for line in lines for sentence in split_sentences(line)] if self._split else lines


def width(tokenizer: Tokenizer) -> Width:
    """Return the narrowest dtype that can hold every id."""
    return "uint16" if vocab(tokenizer) <= 1 << 16 else "uint32"


def vocab(tokenizer: Tokenizer) -> int:
    """Return the highest id plus one; some vocabularies have gaps."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1


def replace_surrogates(document: str) -> str:
    """Replace unpaired surrogates, which JSON can represent but UTF-8 cannot."""
    try:
        document.encode()
    except UnicodeEncodeError:
        return document.encode(errors="replace").decode()
    return document


def is_held_out(document: str, share: float) -> bool:
    """Decide by the hash of the document, so that copies of a document are always in the same split."""
    return score(document, b"held-out") < share


def score(document: str, purpose: bytes) -> float:
    """Return a number in [0, 1) that is uniform over documents and independent between purposes."""
    digest = hashlib.blake2b(document.encode(), digest_size=8, person=purpose).digest()
    # 53 bits, so that the quotient is exact and less than 1.
    return (int.from_bytes(digest) >> 11) / (1 << 53)


Mark = TypeVar("Mark")

CHUNK = 1 << 20

Reader = Callable[[Source], Iterator[tuple[str, int]]]


@dataclass(frozen=True)
class Place:
    """A position in a stream: `documents` documents of source number `source`, and `position` bytes in total."""

    source: int = 0
    documents: int = 0
    position: int = 0


class Chunk(NamedTuple, Generic[Mark]):
    """Documents to encode together, the mark of the last document, and whether the part ends with this chunk."""

    documents: list[str]
    mark: Mark
    ends_part: bool


def read_stream(sources: Sequence[Source], read: Reader, start: Place) -> Iterator[tuple[str, Place]]:
    """Yield the documents of a stream from `start` on, each with the position after it."""
    for number in range(start.source, len(sources)):
        before = sum(source.size for source in sources[:number])
        skipped = start.documents if number == start.source else 0
        documents = islice(read(sources[number]), skipped, None)
        for count, (document, position) in enumerate(documents, start=skipped + 1):
            yield document, Place(number, count, before + position)


def split_chunks(documents: Iterable[tuple[str, Mark]], characters: int) -> Iterator[Chunk[Mark]]:
    """Split documents into chunks; the last part may be shorter, and then no chunk has `ends_part`."""
    pending: list[str] = []
    in_chunk = in_part = 0
    for document, mark in documents:
        pending.append(document)
        in_chunk += len(document)
        in_part += len(document)
        ends_part = in_part >= characters
        if ends_part or in_chunk >= CHUNK:
            yield Chunk(pending, mark, ends_part)
            pending, in_chunk = [], 0
            in_part = 0 if ends_part else in_part
    if pending:
        yield Chunk(pending, mark, ends_part=False)


def encode_chunks(
    chunks: Iterable[Chunk[Mark]], tokenizer_file: Path, sentences: Sentences, held_out: float, workers: int
) -> Iterator[tuple[Chunk[Mark], EncodedDocuments]]:
    """Yield each chunk with its encoded documents, in the order of the chunks for any number of workers."""
    if workers <= 1:
        encode = DocumentEncoder(tokenizer.load(tokenizer_file), sentences, held_out)
        for chunk in chunks:
            yield chunk, encode(chunk.documents)
        return
    sent: deque[Chunk[Mark]] = deque()

    def documents() -> Iterator[list[str]]:
        for chunk in chunks:
            sent.append(chunk)
            yield chunk.documents

    for encoded in map_in_order(_encode, documents(), workers, _start, (tokenizer_file, sentences, held_out)):
        yield sent.popleft(), encoded


_encoder: DocumentEncoder


def _start(tokenizer_file: Path, sentences: Sentences, held_out: float) -> None:
    global _encoder
    _encoder = DocumentEncoder(tokenizer.load(tokenizer_file), sentences, held_out)


def _encode(documents: list[str]) -> EncodedDocuments:
    return _encoder(documents)
