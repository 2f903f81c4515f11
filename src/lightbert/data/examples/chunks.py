"""Chunks of consecutive sentences of one document, computed with array operations instead of a sequential loop."""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lightbert.data.corpus.shards import Shards
from lightbert.data.examples.index import Array

_WINDOW = 1 << 18


class Table(NamedTuple):
    """The offsets of the sentences and documents of one shard, without the tokens."""

    number: int
    sentences: Array  # [sentences + 1], token positions over all shards
    documents: Array  # [documents + 1], sentence numbers


def shard_tables(shards: Shards) -> Iterator[Table]:
    """Yield the tables of the shards, with only one table in memory at a time."""
    base = 0
    for number, shard in enumerate(shards.shards):
        yield Table(number, shard.sentences.astype(np.int64) + base, shard.documents.astype(np.int64))
        base += len(shard.tokens)


def document_ends(table: Table) -> Array:
    """Return the end of each sentence's document, as a sentence number: [sentences]."""
    return np.repeat(table.documents[1:], np.diff(table.documents))


def chunk_ends(table: Table, targets: Array) -> Array:
    """Return the end of a chunk that starts at each sentence: at `targets` tokens or at the end of the document."""
    reached = np.searchsorted(table.sentences, table.sentences[:-1] + targets)
    return np.minimum(reached, document_ends(table))


def walk(following: Array) -> Array:
    """Follow the links `following` from sentence 0 to the end and return the visited sentences.

    This is the only sequential step. Every random choice of a builder depends on the first sentence of a chunk, so the
    choices are computed for all sentences in advance and only the path remains to be found.
    """
    path, here = array("q"), 0
    for low in range(0, len(following), _WINDOW):
        window = following[low : low + _WINDOW].tolist()
        high = low + len(window)
        while here < high:
            path.append(here)
            here = window[here - low]
    return np.frombuffer(path, np.int64) if path else np.zeros(0, np.int64)
