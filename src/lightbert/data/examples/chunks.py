"""Chunks of consecutive sentences of one document, cut as a sequential reader would cut them, but all at once."""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lightbert.data.corpus.shards import Shards
from lightbert.data.examples.index import Array

_WINDOW = 1 << 18


class Table(NamedTuple):
    """Where the sentences and documents of one shard start, without the tokens themselves."""

    number: int
    sentences: Array  # [sentences + 1], token positions counted through all shards
    documents: Array  # [documents + 1], sentence numbers


def shard_tables(shards: Shards) -> Iterator[Table]:
    """Go through the shards one by one, so that only one table is in memory."""
    base = 0
    for number, shard in enumerate(shards.shards):
        yield Table(number, shard.sentences.astype(np.int64) + base, shard.documents.astype(np.int64))
        base += len(shard.tokens)


def document_ends(table: Table) -> Array:
    """Return the sentence after the last one of each sentence's document: [sentences]."""
    return np.repeat(table.documents[1:], np.diff(table.documents))


def chunk_ends(table: Table, targets: Array) -> Array:
    """Return where a chunk would end that starts at each sentence: with `targets` tokens or with its document."""
    reached = np.searchsorted(table.sentences, table.sentences[:-1] + targets)
    return np.minimum(reached, document_ends(table))


def walk(following: Array) -> Array:
    """Follow `following` from sentence 0 to the end and return the sentences stepped on.

    The one sequential part. Every random choice of a builder belongs to the sentence a chunk starts with, so that all
    that could happen is computed beforehand, at every sentence, and only the path is left to find.
    """
    path, here = array("q"), 0
    for low in range(0, len(following), _WINDOW):
        window = following[low : low + _WINDOW].tolist()
        high = low + len(window)
        while here < high:
            path.append(here)
            here = window[here - low]
    return np.frombuffer(path, np.int64) if path else np.zeros(0, np.int64)
