"""Encodes documents: splits sentences, separates held-out documents and drops empty ones."""

import hashlib
from typing import Literal, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from lightbert.data.corpus.shard_writer import Block, Width
from lightbert.data.corpus.word_table import WordTable
from lightbert.data.text.sentences import split_sentences

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
        owners = np.repeat(np.arange(len(documents)), [len(each) for each in sentences])
        ids, lengths = self._table.encode([sentence for each in sentences for sentence in each])
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
