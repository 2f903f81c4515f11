"""Batches of rows of similar length, by step number, padded or packed."""

import math
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbert.data.batch import Batch, pack_rows, pad_rows
from lightbert.data.features import Features, Specials
from lightbert.data.loader import SINGLE_PROCESS, LoaderSettings, PerEpoch, prefetch, shuffle_at
from lightbert.data.packing import Packing, pack
from lightbert.errors import InputError
from lightbert.ops.randomness import Stream, bits

Array = NDArray[np.int64]


class Buckets:
    """The batches of a task, as a pure function of the arguments and the step; each is padded to its longest row.

    In each epoch, all rows are shuffled and split into windows of about `sort_over` batches. Within a window, rows are
    sorted by length and split into batches; then the batches of the epoch are shuffled. A batch has rows of similar
    length, and different rows in each epoch. With `sort_over=1`, the lengths in a batch are arbitrary. The last batch
    is filled with the first rows of the epoch.

    With `shuffle=False`, for evaluation, the rows are sorted by length, each appears once per epoch, and the last batch
    can be shorter. `batch` is the number of rows over all ranks; each rank gets a run of consecutive rows. The width of
    a batch is rounded up to a multiple of `multiple`, which gives fewer shapes for more padding.
    """

    def __init__(
        self,
        features: Features,
        *,
        batch: int,
        specials: Specials,
        seed: int = 0,
        shuffle: bool = True,
        multiple: int = 1,
        sort_over: int = 64,
        settings: LoaderSettings = SINGLE_PROCESS,
    ) -> None:
        settings.check_batch(batch)
        if not len(features):
            raise InputError("the task must have at least one example, got 0; check its files")
        self.features, self.specials = features, specials
        self.batch, self.seed, self.shuffle, self.multiple = batch, seed, shuffle, multiple
        self.sort_over = sort_over
        self.settings = settings
        self._lengths = features.lengths
        self._orders = PerEpoch(self._order)
        self.steps_per_epoch = -(-len(features) // batch)

    def examples(self, step: int) -> Array:
        """Return the row numbers of this rank at a step."""
        return self._batch_rows(step)[self._rank_rows(step)]

    def at(self, step: int) -> Batch:
        """Return this rank's part of the batch of a step, padded to the longest row of the whole batch."""
        whole, rows = self._batch_rows(step), self._rank_rows(step)
        batch = pad_rows(self.features, whole[rows], self._width(whole), self.specials.pad, rows=rows, step=step)
        return self.settings.maybe_pin(batch)

    def stream(self, start: int = 0, stop: int | None = None) -> Generator[Batch]:
        """Yield the batches from step `start` on, with prefetching; close the iterator to stop the workers."""
        return prefetch(self.at, start, stop, self.settings.workers)

    def padding(self, epoch: int = 0) -> float:
        """Return the share of padding in the tokens of an epoch, over all ranks."""
        steps = range(epoch * self.steps_per_epoch, (epoch + 1) * self.steps_per_epoch)
        batches = [self._batch_rows(step) for step in steps]
        area = sum(len(whole) * self._width(whole) for whole in batches)
        return 1.0 - sum(int(self._lengths[whole].sum()) for whole in batches) / area

    def _width(self, whole: Array) -> int:
        return -(-int(self._lengths[whole].max()) // self.multiple) * self.multiple

    def _rank_rows(self, step: int) -> Array:
        share: Array = np.array_split(np.arange(len(self._batch_rows(step))), self.settings.world)[self.settings.rank]
        return share

    def _batch_rows(self, step: int) -> Array:
        epoch, turn = divmod(step, self.steps_per_epoch)
        order = self._orders[epoch if self.shuffle else 0]
        return order[turn * self.batch : (turn + 1) * self.batch]

    def _order(self, epoch: int) -> Array:
        if not self.shuffle:
            return np.argsort(self._lengths, kind="stable")
        size = len(self.features)
        order = shuffle_at(np.arange(self.steps_per_epoch * self.batch) % size, size, self.seed, epoch)
        batches = order.reshape(-1, self.batch)
        # A short last window would have much padding, so its batches are distributed over the other windows.
        windows = np.array_split(batches, max(1, self.steps_per_epoch // self.sort_over))
        ordered = [rows[np.argsort(self._lengths[rows], kind="stable")] for rows in map(np.ravel, windows)]
        turns = np.argsort(bits(self.seed, Stream.BUCKET, epoch, 0, np.arange(self.steps_per_epoch)), kind="stable")
        return np.concatenate(ordered).reshape(-1, self.batch)[turns].ravel()


_SAMPLED_STEPS = 256
_FITTING_SHARE = 0.9
_FINE, _COARSE = 16, 64


class Shape(NamedTuple):
    """The shape of the packed rows of a batch; a batch that needs more rows gets a multiple of this number."""

    rows: int
    width: int

    def rows_for(self, needed: int) -> int:
        """Return the number of rows of a batch that needs at least this many."""
        return -(-needed // self.rows) * self.rows


class PackedBuckets(Buckets):
    """`Buckets` with the same rows of the features at each step, as texts packed into few rows of one shape.

    The shape is chosen from the longest text and the batches of the first epoch: nearly all of them fit, with as little
    padding as possible. The others get twice as many rows, or more: every text is in its batch, and none is truncated.
    The lengths in a batch should be mixed (`sort_over=1`), so that all batches have about as many tokens.
    positions: the maximum tokens of a row; 0 = unlimited.
    """

    def __init__(self, features: Features, *, positions: int = 0, **settings: Any) -> None:
        super().__init__(features, **settings)
        steps = np.linspace(0, self.steps_per_epoch - 1, min(_SAMPLED_STEPS, self.steps_per_epoch)).astype(np.int64)
        sample = [self._lengths[self.examples(step)] for step in steps.tolist()]
        self.shape = cheapest_shape(sample, row_widths(int(self._lengths.max()), positions))

    def at(self, step: int) -> Batch:
        """Return this rank's part of the batch of a step, packed."""
        rows = self._rank_rows(step)
        chosen = self._batch_rows(step)[rows]
        packing = self._pack(chosen)
        batch = pack_rows(
            self.features,
            chosen,
            packing,
            self.shape.rows_for(packing.rows),
            self.specials.pad,
            rows=rows,
            step=step,
        )
        return self.settings.maybe_pin(batch)

    def padding(self, epoch: int = 0) -> float:
        """Return the share of padding in the tokens of this rank in an epoch."""
        steps = range(epoch * self.steps_per_epoch, (epoch + 1) * self.steps_per_epoch)
        packings = [self._pack(self.examples(step)) for step in steps]
        area = sum(self.shape.rows_for(packing.rows) * self.shape.width for packing in packings)
        return 1.0 - sum(packing.tokens for packing in packings) / area

    def _pack(self, chosen: Array) -> Packing:
        return pack(self._lengths[chosen], self.shape.width)


def row_widths(longest: int, positions: int = 0) -> list[int]:
    """Return the widths to choose from for texts of up to `longest` tokens: just as wide, or up to twice as wide."""
    first = -(-longest // _FINE) * _FINE
    wider = range(-(-longest // _COARSE) * _COARSE, 2 * longest + _COARSE, _COARSE)
    widths = sorted({first, *wider})
    return sorted({max(longest, min(width, positions)) for width in widths}) if positions else widths


def cheapest_shape(batches: list[Array], widths: list[int]) -> Shape:
    """Return the shape with the fewest tokens, padding included, of those that are enough for nine of ten batches.

    batches: the lengths of the texts of each batch.
    """
    best, fewest = Shape(1, widths[0]), math.inf
    for width in widths:
        needed = np.array([pack(lengths, width).rows for lengths in batches])
        enough = np.quantile(needed, _FITTING_SHARE, method="higher")
        for rows in np.unique(needed[needed >= enough]).tolist():
            tokens = float((-(-needed // rows) * rows * width).mean())
            if tokens < fewest:
                best, fewest = Shape(rows, width), tokens
    return best
