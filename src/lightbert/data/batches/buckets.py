"""Batches of rows of similar length, by step number, with little padding."""

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from lightbert.data.batches.batch import Batch
from lightbert.data.batches.padding import pad_rows
from lightbert.data.batches.prefetch import SINGLE_PROCESS, LoaderSettings, PerEpoch, prefetch
from lightbert.data.examples.features import Features
from lightbert.data.examples.order import shuffle_at
from lightbert.data.examples.specials import Specials
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
