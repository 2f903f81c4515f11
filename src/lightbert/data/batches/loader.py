"""Pre-training batches as a function of the step number."""

from collections.abc import Generator

import numpy as np
import torch

from lightbert.data.batches.assembly import assemble
from lightbert.data.batches.batch import Batch
from lightbert.data.batches.prefetch import SINGLE_PROCESS, LoaderSettings, PerEpoch, prefetch
from lightbert.data.corpus.shards import Shards
from lightbert.data.examples.index import Array, Builder, Index
from lightbert.data.examples.order import shuffle_at
from lightbert.data.examples.specials import Specials
from lightbert.errors import InputError


class Loader:
    """The batches of a run, or of one phase of it, as a pure function of the arguments and the step.

    `batch` is the number of rows over all ranks; each rank gets a run of consecutive rows. All epochs have as many
    steps as the first one; if an epoch has slightly more or fewer examples, some are dropped or repeated.
    """

    def __init__(
        self,
        shards: Shards,
        builder: Builder,
        *,
        batch: int,
        length: int,
        specials: Specials,
        seed: int = 0,
        settings: LoaderSettings = SINGLE_PROCESS,
    ) -> None:
        settings.check_batch(batch)
        self.shards, self.builder, self.specials = shards, builder, specials
        self.batch, self.length, self.seed = batch, length, seed
        self.settings = settings
        share = batch // settings.world
        self._rows = np.arange(settings.rank * share, (settings.rank + 1) * share)
        self._indexes = PerEpoch(self._build)
        examples = len(self._index(0))
        if not examples:
            raise InputError(f"the corpus has no examples of length {length}; prepare more text or set another length")
        self.steps_per_epoch = max(1, examples // batch)

    def examples(self, step: int) -> Array:
        """Return the example numbers of this rank at a step, in the index of the step's epoch."""
        epoch, turn = divmod(step, self.steps_per_epoch)
        size = len(self._index(epoch))
        return shuffle_at((turn * self.batch + self._rows) % size, size, self.seed, epoch)

    def at(self, step: int) -> Batch:
        """Return this rank's part of the batch of a step."""
        index = self._index(step // self.steps_per_epoch)
        examples = self.examples(step)
        rows = assemble(self.shards, index, examples, self.specials)
        batch = Batch(
            ids=torch.from_numpy(rows.ids),
            mask=torch.from_numpy(rows.mask),
            segments=torch.from_numpy(rows.segments),
            rows=torch.from_numpy(self._rows),
            step=torch.tensor(step),
            nsp=None if index.labels is None else torch.from_numpy(index.labels[examples].astype(np.int64)),
        )
        return self.settings.maybe_pin(batch)

    def stream(self, start: int = 0, stop: int | None = None) -> Generator[Batch]:
        """Yield the batches from step `start` on, with prefetching; close the iterator to stop the workers."""
        return prefetch(self.at, start, stop, self.settings.workers, self._prefetch_index)

    def _prefetch_index(self, step: int) -> None:
        """Build the index of the next epoch half an epoch early, so that no step waits for it."""
        epoch, turn = divmod(step, self.steps_per_epoch)
        if turn == self.steps_per_epoch // 2:
            self._index(epoch + 1)

    def _index(self, epoch: int) -> Index:
        return self._indexes[epoch if self.builder.varies_by_epoch else 0]

    def _build(self, epoch: int) -> Index:
        return self.builder.build(self.shards, self.length, self.seed, epoch)
