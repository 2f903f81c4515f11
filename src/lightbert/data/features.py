"""Encoded examples of a task as rows of tokens, padded or packed into batches, without torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


IGNORE_INDEX = -100
"""The target of tokens that are ignored in the loss, such as padding."""


@dataclass(frozen=True)
class Features:
    """Concatenated rows without padding; one example can have several rows, such as the windows of a long text."""

    tokens: NDArray[np.int32]  # [Σt]
    starts: NDArray[np.int64]  # [n + 1], the start of each row, and the end of the last
    seconds: NDArray[np.int64]  # [n], the start of the second segment within the row; the row length if there is none
    sources: NDArray[np.int64]  # [n], the example of each row
    targets: NDArray[Any] | None = None  # [n, …], or [Σt] for token targets
    per_token: bool = False
    cut: int = 0
    """The number of truncated rows."""

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each row."""
        return np.diff(self.starts)

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[int]],
        seconds: Sequence[int],
        sources: Sequence[int] | None = None,
        targets: NDArray[Any] | None = None,
        *,
        per_token: bool = False,
        cut: int = 0,
    ) -> "Features":
        """Concatenate rows; by default each row is its own example."""
        lengths = [len(row) for row in rows]
        return cls(
            tokens=np.fromiter((token for row in rows for token in row), dtype=np.int32, count=sum(lengths)),
            starts=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
            seconds=np.asarray(seconds, dtype=np.int64),
            sources=np.arange(len(rows)) if sources is None else np.asarray(sources, dtype=np.int64),
            targets=targets,
            per_token=per_token,
            cut=cut,
        )

    @classmethod
    def concatenate(cls, parts: "Sequence[Features]") -> "Features":
        """The rows of several features, in order, without their targets; each row is its own example."""
        offsets = np.cumsum([0, *(len(part.tokens) for part in parts)])
        starts = [part.starts[:-1] + offset for part, offset in zip(parts, offsets, strict=False)]
        seconds = np.concatenate([part.seconds for part in parts])
        return cls(
            tokens=np.concatenate([part.tokens for part in parts]),
            starts=np.concatenate([*starts, offsets[-1:]]),
            seconds=seconds,
            sources=np.arange(len(seconds)),
            cut=sum(part.cut for part in parts),
        )


@dataclass(frozen=True)
class Specials:
    """The ids of the special tokens."""

    pad: int
    cls: int
    sep: int
    mask: int

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> "Specials":
        """Look up the ids under BERT's or SentencePiece's names."""
        return cls(
            pad=_id(tokenizer, "[PAD]", "<pad>"),
            cls=_id(tokenizer, "[CLS]"),
            sep=_id(tokenizer, "[SEP]"),
            mask=_id(tokenizer, "[MASK]"),
        )


def _id(tokenizer: "Tokenizer", *names: str) -> int:
    for name in names:
        index = tokenizer.token_to_id(name)
        if index is not None:
            return index
    raise InputError(f"the tokenizer has no {names[0]} token; train one with `lightbert prepare` or add the token")


Array = NDArray[np.int64]


@dataclass(frozen=True)
class Packing:
    """The places of texts in packed rows: each text is contiguous and in one row."""

    width: int
    rows: int
    starts: Array
    """[n], the place of the first token of each text in the flattened rows: row · width + column."""
    tokens: int

    @property
    def fill(self) -> float:
        """The share of the rows that contains tokens; 1 without rows."""
        return self.tokens / (self.rows * self.width) if self.rows else 1.0

    def part(self, first: int, stop: int) -> tuple[Array, Array]:
        """Return the texts of the rows from `first` to `stop` in the order of their places, and these places.

        The places are counted from the first of these rows.
        """
        row = self.starts // self.width
        chosen = np.flatnonzero((row >= first) & (row < stop))
        chosen = chosen[np.argsort(self.starts[chosen])]
        return chosen, self.starts[chosen] - first * self.width


def pack(lengths: Array, width: int, texts_per_row: int | None = None) -> Packing:
    """Pack texts into few rows: best-fit decreasing.

    The longest text comes first; each is appended to the fullest row that has room for it, or begins a new row. The
    result depends on the lengths only.
    texts_per_row: the maximum number of texts in a row; None = unlimited.
    """
    if len(lengths) and not 1 <= int(lengths.min()) <= int(lengths.max()) <= width:
        raise InputError(
            f"packed texts must have 1 to {width} tokens, the width of a row, got {lengths.min()} to {lengths.max()}"
        )
    # Without a limit of its own, a row is full before it has more texts than columns.
    limit = texts_per_row or width
    order = np.argsort(-lengths, kind="stable")
    starts = [0] * len(lengths)
    counts: list[int] = []
    # The rows by their free columns, and the numbers of free columns that occur, as bits.
    open_rows: list[list[int]] = [[] for _ in range(width + 1)]
    occurring = 0
    for text, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        fitting = occurring >> length
        if fitting:
            free = length + (fitting & -fitting).bit_length() - 1
            row = open_rows[free].pop()
            if not open_rows[free]:
                occurring ^= 1 << free
        else:
            free, row = width, len(counts)
            counts.append(0)
        starts[text] = row * width + width - free
        counts[row] += 1
        free -= length
        if free and counts[row] < limit:
            open_rows[free].append(row)
            occurring |= 1 << free
    return Packing(width, len(counts), np.array(starts, dtype=np.int64), int(lengths.sum()))


class PackedRows(NamedTuple):
    """Packed rows as arrays [B, T], and where their texts are; the shapes don't depend on the number of texts."""

    ids: Array
    texts: NDArray[np.int32]
    """The number of each token's text, from 1; 0 in the padding."""
    segments: Array
    at: Array
    """The index of each token in the features; 0 in the padding."""
    starts: Array
    """[N], the place of the first token of each text in the flattened rows; B·T after the last text."""
    lengths: Array
    """[N], the number of tokens of each text; 0 after the last text."""


def packed_rows(
    features: Features, chosen: Array, starts: Array, shape: tuple[int, int], pad: int, capacity: int
) -> PackedRows:
    """Put the chosen texts at their places in rows of a given shape; there is room for `capacity` texts."""
    lengths = features.lengths[chosen]
    owner = np.repeat(np.arange(len(chosen)), lengths)
    within = np.arange(len(owner)) - (np.cumsum(lengths) - lengths)[owner]
    place, source = starts[owner] + within, features.starts[chosen][owner] + within
    size = shape[0] * shape[1]
    ids, segments, at = np.full(size, pad, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    texts = np.zeros(size, np.int32)
    ids[place], texts[place], at[place] = features.tokens[source], owner + 1, source
    segments[place] = within >= features.seconds[chosen][owner]
    missing = capacity - len(chosen)
    return PackedRows(
        ids=ids.reshape(shape),
        texts=texts.reshape(shape),
        segments=segments.reshape(shape),
        at=at.reshape(shape),
        starts=np.pad(starts, (0, missing), constant_values=size),
        lengths=np.pad(lengths, (0, missing)),
    )


class PaddedRows(NamedTuple):
    """Rows of one batch as arrays [B, T]."""

    ids: Array
    mask: NDArray[np.bool_]
    segments: Array
    at: Array
    """The index of each token in the features; any valid one in the padding."""


def padded_rows(features: Features, chosen: Array, length: int, pad: int) -> PaddedRows:
    """Pad the chosen rows to `length`."""
    places = np.arange(length)
    mask = places < features.lengths[chosen, None]  # [B, T]
    # After the end of a row any valid index can be used, because the values are masked.
    at = np.minimum(features.starts[chosen, None] + places, max(len(features.tokens) - 1, 0))
    return PaddedRows(
        ids=np.where(mask, features.tokens[at], pad).astype(np.int64),
        mask=mask,
        segments=(mask & (places >= features.seconds[chosen, None])).astype(np.int64),
        at=at,
    )


def group_by_length(
    lengths: Array, *, min_tokens: int, max_tokens: int, equal_lengths: bool = False
) -> Iterator[Array]:
    """Group rows into few batches with little padding, and yield the row numbers of each batch, shortest rows first.

    The last row of a batch is its longest. The cost of a batch is its number of tokens, padding included, and at least
    `min_tokens`, because smaller batches leave the device idle. Dynamic programming finds the cheapest way to split the
    sorted rows where the length changes. A batch of more than `max_tokens` tokens is split further. With
    `equal_lengths`, all rows of a batch have the same length, so there is no padding.
    """
    if not len(lengths):
        return
    order = np.argsort(lengths, kind="stable")
    # The distinct lengths, and for each the number of rows that are not longer.
    widths, counts = np.unique(lengths, return_counts=True)
    ends = np.cumsum(counts)
    cuts = range(len(widths)) if equal_lengths else _cheapest_splits(widths, ends, min_tokens)
    start = 0
    for cut in cuts:
        rows = order[start : ends[cut]]
        pieces = -(-len(rows) // max(1, max_tokens // int(widths[cut])))
        yield from np.array_split(rows, pieces)
        start = int(ends[cut])


def _cheapest_splits(widths: Array, ends: Array, min_tokens: int) -> list[int]:
    """Return which of the lengths are the maximum length of a batch."""
    begins = np.concatenate([[0], ends])
    costs, origins = np.zeros(len(widths) + 1), np.zeros(len(widths), dtype=np.int64)
    for last, width in enumerate(widths):
        areas = (ends[last] - begins[: last + 1]) * width
        choices = costs[: last + 1] + np.maximum(areas, min_tokens)
        origins[last] = choices.argmin()
        costs[last + 1] = choices[origins[last]]
    cuts, at = [], len(widths)
    while at:
        cuts.append(at - 1)
        at = int(origins[at - 1])
    return cuts[::-1]
