"""Builders that turn documents into the examples of an epoch: segments, pairs of sentences or lines, packed rows.

Examples are arrays with the source and position of each run of tokens. They are computed with array operations instead
of a loop over sentences.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.ops.randomness import Stream, bits, chance

Array = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Mark(IntFlag):
    """Special tokens and segment changes around a piece."""

    OPENS = 1  # [CLS] before the piece: a text starts
    CLOSES = 2  # [SEP] after the piece
    SECOND = 4  # the second segment starts with the piece


class Pieces(NamedTuple):
    """Runs of consecutive tokens in row order; one entry per piece."""

    example: Array  # example numbers from 0, ascending, without gaps
    start: Array  # position of the first token over all shards
    length: Array  # may be 0
    marks: NDArray[np.uint8]


@dataclass(frozen=True)
class Index:
    """All examples of an epoch, about 40 bytes each; example e has the pieces `first[e]` to `first[e + 1]`."""

    length: int
    packed: bool
    first: Array  # [examples + 1]
    start: Array  # [pieces]
    size: NDArray[np.uint16]  # [pieces]
    column: NDArray[np.uint16]  # [pieces], the column of the first token
    marks: NDArray[np.uint8]  # [pieces]
    labels: NDArray[np.uint8] | None = None  # [examples]

    def __len__(self) -> int:
        return len(self.first) - 1


class Builder(Protocol):
    """Builds examples of at most `length` tokens from sentences, as a pure function of its arguments."""

    varies_by_epoch: ClassVar[bool]
    """Whether the examples change from epoch to epoch."""

    def build(self, shards: Shards, length: int, seed: int, epoch: int) -> Index:
        """Index the examples of one epoch."""
        ...


def join(
    parts: Sequence[Pieces], length: int, *, packed: bool = False, labels: NDArray[np.uint8] | None = None
) -> Index:
    """Join the pieces of all shards, in order, into one index."""
    counts = np.concatenate([np.bincount(part.example) for part in parts])
    return Index(
        length=length,
        packed=packed,
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        start=np.concatenate([part.start for part in parts]),
        size=np.concatenate([part.length for part in parts]).astype(np.uint16),
        column=np.concatenate([_columns(part) for part in parts]).astype(np.uint16),
        marks=np.concatenate([part.marks for part in parts]),
        labels=labels,
    )


def cumsum_before(groups: NDArray[Any], amounts: Array) -> Array:
    """Return the exclusive cumulative sum of `amounts` within each run of equal `groups`."""
    before = np.cumsum(amounts) - amounts
    begins = np.flatnonzero(run_starts(groups))
    return before - np.repeat(before[begins], np.diff(begins, append=len(groups)))


def run_starts(groups: NDArray[Any]) -> Flags:
    """Return a mask of the first entry of each run of equal `groups`."""
    first = np.ones(len(groups), bool)
    first[1:] = groups[1:] != groups[:-1]
    return first


def pair_marks(segment: Array) -> NDArray[np.uint8]:
    """Return the marks of [CLS] A [SEP] B [SEP] pieces, given 2·example + segment of each in ascending order."""
    first = run_starts(segment)
    last = np.ones_like(first)
    last[:-1] = first[1:]
    opens = run_starts(segment // 2)
    return combine_marks(opens=opens, closes=last, second=first & (segment % 2 == 1))


def combine_marks(*, opens: Flags, closes: Flags, second: Flags | None = None) -> NDArray[np.uint8]:
    """Combine flags into the marks of pieces."""
    marks = opens * np.uint8(Mark.OPENS) | closes * np.uint8(Mark.CLOSES)
    return marks if second is None else marks | second * np.uint8(Mark.SECOND)


def _columns(pieces: Pieces) -> Array:
    opens = (pieces.marks & Mark.OPENS > 0).astype(np.int64)
    closes = (pieces.marks & Mark.CLOSES > 0).astype(np.int64)
    return cumsum_before(pieces.example, opens + pieces.length + closes) + opens


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


def follow(following: Array) -> Array:
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


# (tokens in A, tokens of the sentence, limit of A, whether B has started, coin) -> whether the sentence is added to B
Condition = Callable[[Array, Array, Array, Flags, Flags], Flags]

_MIN_LENGTH = 5
_UNLIMITED = 100_000


@dataclass(frozen=True)
class Segments:
    """[CLS] A [SEP] B [SEP] from sentences of one document, read until they fill `length`.

    A gets the first sentence, all sentences that keep it below half of the target, and with probability 0.5 the one
    that exceeds it; B gets the rest. A later sentence that still fits is added to A even after B has started, as in
    ELECTRA. `released` selects the condition of the released ConvBERT, before ELECTRA's fix (electra#20): A gets
    everything once it has started, and B only the long sentences before that, so few examples have two segments.
    `single` is the probability that A has no limit, `short` the probability of a random target length.
    """

    released: bool = False
    single: float = 0.1
    short: float = 0.05

    varies_by_epoch: ClassVar[bool] = True

    def build(self, shards: Shards, length: int, seed: int, epoch: int) -> Index:
        """Index the examples of one epoch."""
        if length < _MIN_LENGTH:
            raise InputError(f"the length of segments must be >= {_MIN_LENGTH}, got {length}")
        return join([self._pieces(table, length, seed, epoch) for table in shard_tables(shards)], length)

    def _pieces(self, table: Table, length: int, seed: int, epoch: int) -> Pieces:
        numbers = np.arange(len(table.sentences) - 1)
        words = bits(seed, Stream.LENGTH, epoch, table.number, numbers)
        is_short = words < chance(self.short)
        # Given that it is below the threshold, the random number is again uniform.
        shorter = _MIN_LENGTH + words * (length - _MIN_LENGTH + 1) // max(1, chance(self.short))
        targets = np.where(is_short, shorter, length)
        starts = follow(chunk_ends(table, targets))
        counts = np.diff(starts, append=len(numbers))

        coins = bits(seed, Stream.SEGMENT, epoch, table.number, numbers)
        # The first sentence of an example needs no coin, so its random number determines the limit.
        limits = np.where(coins[starts] < chance(self.single), _UNLIMITED, (targets[starts] - 3) // 2)
        condition = _in_second_segment_released if self.released else _in_second_segment
        second = _assign_segments(condition, np.diff(table.sentences), coins < chance(0.5), starts, counts, limits)
        return _truncate(table, np.repeat(np.arange(len(starts)), counts), second, length)


def _in_second_segment(first: Array, size: Array, limit: Array, started: Flags, coin: Flags) -> Flags:
    fits: Flags = (first == 0) | (first + size < limit)
    return ~fits & ~(~started & (first < limit) & coin)


def _in_second_segment_released(first: Array, size: Array, limit: Array, started: Flags, coin: Flags) -> Flags:
    too_long: Flags = (first == 0) & (size >= limit)
    return too_long & ~(started & coin)


def _assign_segments(
    condition: Condition, sizes: Array, coins: Flags, starts: Array, counts: Array, limits: Array
) -> Flags:
    """Return which sentences belong to the second segment, processing one sentence of every example at a time."""
    second = np.zeros(len(sizes), bool)
    first, started = np.zeros(len(starts), np.int64), np.zeros(len(starts), bool)
    active = np.arange(len(starts))
    for offset in range(int(counts.max())):
        active = active[counts[active] > offset]
        sentence = starts[active] + offset
        in_second = condition(first[active], sizes[sentence], limits[active], started[active], coins[sentence])
        second[sentence] = in_second
        first[active] += np.where(in_second, 0, sizes[sentence])
        started[active] |= in_second
    return second


def _truncate(table: Table, example: Array, second: Flags, length: int) -> Pieces:
    """Join runs of sentences into pieces, order them by example and segment, and truncate to `length`."""
    begins = np.flatnonzero(np.diff(2 * example + second, prepend=-1))
    start = table.sentences[begins]
    size = np.diff(start, append=table.sentences[-1])
    # With the released condition the first segment can be empty, which gives [CLS] [SEP] B [SEP].
    has_first = np.zeros(example[-1] + 1, bool)
    has_first[example[~second]] = True
    empty = np.flatnonzero(~has_first)
    nothing = np.zeros_like(empty)
    key = np.concatenate([2 * empty, (2 * example + second)[begins]])
    order = np.argsort(key, kind="stable")
    key = key[order]
    start = np.concatenate([nothing, start])[order]
    size = np.concatenate([nothing, size])[order]

    in_second = key % 2 == 1
    taken = np.minimum(np.bincount(key[~in_second] // 2, size[~in_second]).astype(np.int64), length - 2)
    room = np.where(in_second, length - 3 - taken[key // 2], length - 2)
    size = np.clip(room - cumsum_before(key, size), 0, size)
    kept = (size > 0) | ~in_second
    return Pieces(key[kept] // 2, start[kept], size[kept], pair_marks(key[kept]))


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

        chosen = follow(np.where(is_random, split, end))
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
    draws = 0
    while len(active):
        left = tosses[active] - 32 * draws
        coins = bits(seed, Stream.TRUNCATION, epoch, active, np.full_like(active, 2 * draws + text))
        heads[active] += np.bitwise_count(coins & ((1 << np.minimum(left, 32)) - 1))
        active = active[left > 32]
        draws += 1
    return heads


@dataclass(frozen=True)
class LinePairs:
    """[CLS] A [SEP] B [SEP] from lines 0 and 1, 2 and 3 and so on, regardless of document boundaries.

    Truncated on the right to `length`, possibly within A or without the last [SEP]; one segment; no next-sentence
    label. Deviation: the odd last line of a shard is dropped instead of paired with the first line of the next shard.
    """

    varies_by_epoch: ClassVar[bool] = False

    def build(self, shards: Shards, length: int, seed: int, epoch: int) -> Index:
        """Index the pairs, which are the same in every epoch."""
        if length < 2:
            raise InputError(f"the length of line pairs must be >= 2, got {length}")
        return join([_line_pieces(table, length) for table in shard_tables(shards)], length)


def _line_pieces(table: Table, length: int) -> Pieces:
    pairs = (len(table.sentences) - 1) // 2
    start = table.sentences[: 2 * pairs]
    first, second = np.diff(table.sentences[: 2 * pairs + 1]).reshape(pairs, 2).T
    size = np.stack([np.minimum(first, length - 1), np.clip(length - 2 - first, 0, second)], axis=1).ravel()
    closes = np.stack([first <= length - 2, first + second <= length - 3], axis=1).ravel()
    opens = np.tile([True, False], pairs)
    kept = size > 0
    marks = combine_marks(opens=opens, closes=closes)
    return Pieces(np.repeat(np.arange(pairs), 2)[kept], start[kept], size[kept], marks[kept])


@dataclass(frozen=True)
class Packing:
    """Rows of several texts [CLS] … [SEP], numbered from 1 by the mask; each text is a document or a part of one.

    A document that does not fit continues in the next row. Only the end of a row is padded: a document that would be
    split after fewer than `shortest` tokens starts in the next row instead.
    """

    shortest: int = 8

    varies_by_epoch: ClassVar[bool] = False

    def build(self, shards: Shards, length: int, seed: int, epoch: int) -> Index:
        """Index the rows, which are the same in every epoch."""
        if length < 3:
            raise InputError(f"the length of packed rows must be >= 3, got {length}")
        return join(
            [_packed_pieces(table, length, self.shortest) for table in shard_tables(shards)], length, packed=True
        )


def _packed_pieces(table: Table, length: int, shortest: int) -> Pieces:
    tokens = table.sentences[table.documents]
    # Positions in all documents with their [CLS] and [SEP], concatenated: document d has frames[d]:frames[d + 1].
    frames = tokens - tokens[0] + 2 * np.arange(len(tokens))
    begins, ends = _packed_rows(frames, length, shortest)
    first = np.searchsorted(frames, begins, side="right") - 1
    counts = np.searchsorted(frames, ends) - first

    row = np.repeat(np.arange(len(begins)), counts)
    document = np.arange(len(row)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    begin = np.maximum(begins[row], frames[document])
    end = np.minimum(ends[row], frames[document + 1])
    marks = np.full(len(row), Mark.OPENS | Mark.CLOSES, np.uint8)
    return Pieces(row, tokens[document] + begin - frames[document], end - begin - 2, marks)


def _packed_rows(frames: Array, length: int, shortest: int) -> tuple[Array, Array]:
    """Return the first position of each row and the end of its positions.

    A row that starts within a document has its [CLS] in place of the previous token, and a row that ends within a
    document has its [SEP] in place of the next token, so two rows that share a document overlap by two positions.
    """
    bounds = frames.tolist()
    begins, ends = array("q"), array("q")
    begin, document = 0, 0
    while begin < bounds[-1]:
        end = begin + length
        while document + 1 < len(bounds) and bounds[document + 1] <= end:
            document += 1
        boundary = bounds[document]
        # `boundary` is the last document boundary in the row, including its end.
        if boundary == end or document + 1 == len(bounds) or begin < boundary > end - 2 - shortest:
            end = following = boundary
        else:
            following = end - 2
        begins.append(begin)
        ends.append(end)
        begin = following
    return np.array(begins, np.int64), np.array(ends, np.int64)
