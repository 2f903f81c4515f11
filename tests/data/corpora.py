"""In-memory corpora whose ids encode their position: token number n of the corpus has the id n + FIRST."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from hypothesis import strategies as st

from lightbert.data.features import Specials
from lightbert.data.shards import Shard

SPECIALS = Specials(pad=0, cls=2, sep=3, mask=4)
FIRST = 10

Lengths = Sequence[Sequence[Sequence[int]]]
"""The number of tokens of each sentence of each document of each shard."""

lengths = st.lists(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=5), min_size=1, max_size=3
)


def corpus(shards: Lengths) -> SimpleNamespace:
    """Return an object with the attributes of `Shards` that builders and the loader read."""
    made, base = [], FIRST
    for documents in shards:
        sentences = np.cumsum([0, *(size for document in documents for size in document)])
        tokens = np.arange(base, base + sentences[-1], dtype=np.uint32)
        bounds = np.cumsum([0, *(len(document) for document in documents)])
        made.append(Shard(tokens, sentences.astype(np.uint32), bounds.astype(np.uint32)))
        base += len(tokens)
    return SimpleNamespace(shards=made, n_documents=sum(map(len, shards)))


def sentences(shards: Lengths) -> list[list[list[list[int]]]]:
    """Return the ids of every sentence, for reference builders written as loops."""
    ids = iter(range(FIRST, 1 << 30))
    return [[[[next(ids) for _ in range(n)] for n in document] for document in shard] for shard in shards]


def documents_of(shards: Lengths) -> np.ndarray:
    """Return the document number of each token of the corpus."""
    sizes = [sum(document) for shard in shards for document in shard]
    return np.repeat(np.arange(len(sizes)), sizes)


def prose(count: int, *, per_document: int, seed: int = 0) -> Lengths:
    """Return sentence lengths from a log-normal distribution with median 20."""
    sizes = np.exp(np.random.default_rng(seed).normal(np.log(20), 0.5, count)).round().clip(1).astype(int).tolist()
    return [[sizes[at : at + per_document] for at in range(0, count, per_document)]]
