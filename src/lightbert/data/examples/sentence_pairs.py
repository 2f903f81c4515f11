"""BERT's examples for next-sentence prediction: pairs of texts, for MobileBERT and its teacher."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from lightbert.data.corpus.shards import Shards
from lightbert.data.examples.chunks import Table, chunk_ends, shard_tables, walk
from lightbert.data.examples.index import Array, Index, Pieces, join, pair_marks
from lightbert.errors import InputError
from lightbert.ops.randomness import Stream, bits, chance


class _Pairs(NamedTuple):
    """The positions of A and the text after it, and the choice of B from another document; all [examples]."""

    start: Array
    split: Array
    end: Array
    other_document: Array  # a document number over all shards, or -1
    sentence: Array  # 32 random bits that select the first sentence of B
    wanted: Array  # target number of tokens of B


@dataclass(frozen=True)
class SentencePairs:
    """[CLS] A [SEP] B [SEP] with label 1 when B comes from another document, 0 when it follows A.

    A chunk of a document is split between two sentences. With probability 0.5, and always if the chunk has one
    sentence, B starts at a random sentence of another document, and the rest of the chunk is used for the next pair. In
    pairs that are too long, tokens are removed from the longer text, from its start or end with equal probability.
    `short` is the probability that the chunks of a document have a random target length.
    """

    short: float = 0.1

    varies_by_epoch: ClassVar[bool] = True

    def build(self, shards: Shards, length: int, seed: int, epoch: int) -> Index:
        """Index the pairs of one epoch."""
        if length < 5:
            raise InputError(f"the length of sentence pairs must be >= 5, got {length}")
        if shards.n_documents < 2:
            raise InputError("sentence pairs require at least 2 documents, got 1; prepare more text or choose segments")
        parts, documents = [], 0
        for table in shard_tables(shards):
            parts.append(self._pairs(table, documents, shards.n_documents, length - 3, seed, epoch))
            documents += len(table.documents) - 1
        pairs = _Pairs(*map(np.concatenate, zip(*parts, strict=True)))
        second, second_end = _second_texts(shards, pairs)
        pieces = _fit(pairs.start, pairs.split, second, second_end, length - 3, seed, epoch)
        return join([pieces], length, labels=(pairs.other_document >= 0).astype(np.uint8))

    def _pairs(self, table: Table, base: int, documents: int, room: int, seed: int, epoch: int) -> _Pairs:
        def words(stream: Stream, columns: Array) -> Array:
            return bits(seed, stream, epoch, table.number, columns)

        numbers = np.arange(len(table.sentences) - 1)
        document = np.repeat(np.arange(len(table.documents) - 1), np.diff(table.documents))
        lengths = words(Stream.LENGTH, np.arange(len(table.documents) - 1))
        shorter = 2 + lengths * (room - 1) // max(1, chance(self.short))
        target = np.where(lengths < chance(self.short), shorter, room)[document]
        end = chunk_ends(table, target)
        split = numbers + 1 + (words(Stream.SPLIT, numbers) * np.maximum(end - numbers - 1, 1) >> 32)
        is_random = (end - numbers == 1) | (words(Stream.NEXT, numbers) < chance(0.5))

        chosen = walk(np.where(is_random, split, end))
        own = base + document[chosen]
        other = (own + 1 + (words(Stream.DOCUMENT, chosen) * (documents - 1) >> 32)) % documents
        start, middle = table.sentences[chosen], table.sentences[split[chosen]]
        return _Pairs(
            start=start,
            split=middle,
            end=table.sentences[end[chosen]],
            other_document=np.where(is_random[chosen], other, -1),
            sentence=words(Stream.SENTENCE, chosen),
            wanted=np.maximum(target[chosen] - (middle - start), 1),
        )


def _second_texts(shards: Shards, pairs: _Pairs) -> tuple[Array, Array]:
    """Return the start and end of B: after A, or from a sentence of the other document, which can be in any shard."""
    start, end = pairs.split.copy(), pairs.end.copy()
    order = np.argsort(pairs.other_document, kind="stable")
    base = 0
    for table in shard_tables(shards):
        last = base + len(table.documents) - 1
        here = order[slice(*np.searchsorted(pairs.other_document[order], [base, last]))]
        document = pairs.other_document[here] - base
        first, after = table.documents[document], table.documents[document + 1]
        sentence = first + (pairs.sentence[here] * (after - first) >> 32)
        start[here] = table.sentences[sentence]
        reached = np.searchsorted(table.sentences, start[here] + pairs.wanted[here])
        end[here] = table.sentences[np.minimum(reached, after)]
        base = last
    return start, end


def _fit(first: Array, first_end: Array, second: Array, second_end: Array, room: int, seed: int, epoch: int) -> Pieces:
    """Truncate pairs that are too long, as if removing one token at a time from the longer text."""
    sizes = np.stack([first_end - first, second_end - second])
    a, b = sizes
    keep_a = np.minimum(a, np.maximum(room - b, (room + 1) // 2))
    kept = np.stack([keep_a, np.minimum(b, room - keep_a)])
    front = np.stack([_count_heads(lost, seed, epoch, text) for text, lost in enumerate(sizes - kept)])
    segment = np.arange(2 * len(first))
    start = (np.stack([first, second]) + front).T.ravel()
    return Pieces(segment // 2, start, kept.T.ravel(), pair_marks(segment))


def _count_heads(tosses: Array, seed: int, epoch: int, text: int) -> Array:
    """Return the number of heads in `tosses` fair coin tosses for each entry, drawn 32 at a time."""
    heads = np.zeros_like(tosses)
    active = np.flatnonzero(tosses)
    turn = 0
    while len(active):
        left = tosses[active] - 32 * turn
        coins = bits(seed, Stream.TRUNCATION, epoch, active, np.full_like(active, 2 * turn + text))
        heads[active] += np.bitwise_count(coins & ((1 << np.minimum(left, 32)) - 1))
        active = active[left > 32]
        turn += 1
    return heads
