"""Batches by step number: nothing else decides what is in them."""

import itertools
import threading
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from lightbert.data.assembly import assemble
from lightbert.data.batch import Batch, Specials
from lightbert.data.index import Array, Builder, Index
from lightbert.data.order import shuffled
from lightbert.data.shards import Shards
from lightbert.errors import InputError


class Loader:
    """The batches of a run, or of one phase of it: a pure function of the arguments and the step.

    `batch` counts the rows of all ranks together; a rank gets its run of consecutive rows. An epoch has as many steps
    as the first epoch's examples fill; the few examples that another epoch has more or less are left out or repeated.
    Workers are threads: assembling a batch is a handful of numpy calls that let go of the interpreter, so that
    processes, with their copies, start-up and orphans, would only cost.
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
        rank: int = 0,
        world: int = 1,
        workers: int = 2,
        pin: bool = False,
    ) -> None:
        if batch < 1 or batch % world:
            raise InputError(f"a batch of {batch} can't be shared by {world} processes; choose a multiple of {world}")
        self.shards, self.builder, self.specials = shards, builder, specials
        self.batch, self.length, self.seed = batch, length, seed
        self.workers, self.pin = workers, pin
        share = batch // world
        self._rows = np.arange(rank * share, (rank + 1) * share)
        self._indexes: dict[int, Future[Index]] = {}
        self._lock = threading.Lock()
        examples = len(self._index(0))
        if not examples:
            raise InputError(
                f"the corpus gives no example of length {length}; prepare more text or choose another length"
            )
        self.steps_per_epoch = max(1, examples // batch)

    def examples(self, step: int) -> Array:
        """Return the numbers of this rank's examples at a step, within the index of the step's epoch."""
        epoch, turn = divmod(step, self.steps_per_epoch)
        size = len(self._index(epoch))
        return shuffled((turn * self.batch + self._rows) % size, size, self.seed, epoch)

    def at(self, step: int) -> Batch:
        """Return this rank's share of the batch of a step."""
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
        return batch.pin() if self.pin else batch

    def stream(self, start: int = 0, stop: int | None = None) -> Generator[Batch]:
        """Yield the batches from step `start` on, a few made ahead; close the iterator to stop the workers."""
        steps = itertools.count(start) if stop is None else iter(range(start, stop))
        if not self.workers:
            yield from map(self.at, steps)
            return
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="lightbert-loader")
        try:
            pending = deque(self._submit(pool, step) for step in itertools.islice(steps, 2 * self.workers))
            while pending:
                ready = pending.popleft().result()
                pending.extend(self._submit(pool, step) for step in itertools.islice(steps, 1))
                yield ready
        finally:
            pool.shutdown(cancel_futures=True)

    def _submit(self, pool: ThreadPoolExecutor, step: int) -> Future[Batch]:
        epoch, turn = divmod(step, self.steps_per_epoch)
        if self.builder.changes and turn == self.steps_per_epoch // 2:
            # Half an epoch early, so that nobody waits for the next epoch's index.
            pool.submit(self._index, epoch + 1)
        return pool.submit(self.at, step)

    def _index(self, epoch: int) -> Index:
        epoch = epoch if self.builder.changes else 0
        with self._lock:
            known = self._indexes.get(epoch)
            if known is None:
                promise = self._indexes[epoch] = Future()
                while len(self._indexes) > 2:
                    del self._indexes[next(iter(self._indexes))]
        if known is not None:
            return known.result()
        try:
            promise.set_result(self.builder.build(self.shards, self.length, self.seed, epoch))
        except BaseException as error:
            promise.set_exception(error)
        return promise.result()
