"""Corpora in memory whose tokens tell where they come from: token number n of the corpus has the id n + FIRST."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from hypothesis import strategies as st

from lightbert.data.batches.batch import Specials
from lightbert.data.corpus.shards import Shard

SPECIALS = Specials(pad=0, cls=2, sep=3, mask=4)
FIRST = 10

Lengths = Sequence[Sequence[Sequence[int]]]
"""The number of tokens of each sentence of each document of each shard."""

lengths = st.lists(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=5), min_size=1, max_size=3
)


def corpus(shards: Lengths) -> SimpleNamespace:
    """Make what the builders and the loader read of `Shards`."""
    made, base = [], FIRST
    for documents in shards:
        sentences = np.cumsum([0, *(size for document in documents for size in document)])
        tokens = np.arange(base, base + sentences[-1], dtype=np.uint32)
        bounds = np.cumsum([0, *(len(document) for document in documents)])
        made.append(Shard(tokens, sentences.astype(np.uint32), bounds.astype(np.uint32)))
        base += len(tokens)
    return SimpleNamespace(shards=made, n_documents=sum(map(len, shards)))


def sentences(shards: Lengths) -> list[list[list[list[int]]]]:
    """Spell the ids of every sentence out, for builders written as loops."""
    ids = iter(range(FIRST, 1 << 30))
    return [[[[next(ids) for _ in range(n)] for n in document] for document in shard] for shard in shards]


def documents_of(shards: Lengths) -> np.ndarray:
    """Return the number of the document that each token of the corpus belongs to."""
    sizes = [sum(document) for shard in shards for document in shard]
    return np.repeat(np.arange(len(sizes)), sizes)


def prose(count: int, *, per_document: int, seed: int = 0) -> Lengths:
    """Sentences of log-normal length with median 20, as in the simulation of the specification."""
    sizes = np.exp(np.random.default_rng(seed).normal(np.log(20), 0.5, count)).round().clip(1).astype(int).tolist()
    return [[sizes[at : at + per_document] for at in range(0, count, per_document)]]
