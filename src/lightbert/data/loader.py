"""Pre-training batches as a function of the step number.

The order of examples is a pseudorandom permutation that is computed instead of stored. Threads prefetch batches and
assemble their rows from memory-mapped tokens.
"""

import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from lightbert.data.batch import Batch, pack_rows, pad_rows
from lightbert.data.examples import Array, Builder, Index, Mark
from lightbert.data.features import Features, Packing, Specials, pack
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.ops.randomness import Stream, bits

T = TypeVar("T")


@dataclass(frozen=True)
class LoaderSettings:
    """How a process loads its batches: its rank, the number of prefetching threads, and pinned memory."""

    rank: int = 0
    world: int = 1
    """The number of processes that share a batch."""
    workers: int = 2
    """The number of prefetching threads; 0 = no prefetching."""
    pin: bool = False
    """Copy batches to page-locked memory, from which copies to a GPU are asynchronous."""

    def check_batch(self, batch: int) -> None:
        """Check that every process gets the same number of rows."""
        if batch < 1 or batch % self.world:
            raise InputError(f"batch ({batch}) must be a positive multiple of the number of processes ({self.world})")

    def maybe_pin(self, batch: Batch) -> Batch:
        """Return the batch, in pinned memory if `pin` is set."""
        return batch.pin() if self.pin else batch


SINGLE_PROCESS = LoaderSettings()


def prefetch(
    at: Callable[[int], Batch],
    start: int,
    stop: int | None,
    workers: int,
    prepare: Callable[[int], None] = lambda step: None,
) -> Generator[Batch]:
    """Yield `at(start)`, `at(start + 1)` and so on, with prefetching; close the iterator to stop the workers.

    A worker calls `prepare` for each step in the background. The workers are threads, because a batch takes a few NumPy
    calls that release the interpreter lock; processes would add copies and start-up time.
    """
    steps = itertools.count(start) if stop is None else iter(range(start, stop))
    if not workers:
        yield from map(at, steps)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="lightbert-loader")

    def submit(step: int) -> Future[Batch]:
        pool.submit(prepare, step)
        return pool.submit(at, step)

    try:
        pending = deque(submit(step) for step in itertools.islice(steps, 2 * workers))
        while pending:
            ready = pending.popleft().result()
            pending.extend(submit(step) for step in itertools.islice(steps, 1))
            yield ready
    finally:
        pool.shutdown(cancel_futures=True)


class PerEpoch(Generic[T]):
    """A thread-safe cache of `make(epoch)` for the last two epochs; each value is computed once."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make
        self._futures: dict[int, Future[T]] = {}
        self._lock = threading.Lock()

    def __getitem__(self, epoch: int) -> T:
        with self._lock:
            known = self._futures.get(epoch)
            if known is None:
                promise = self._futures[epoch] = Future()
                while len(self._futures) > 2:
                    del self._futures[next(iter(self._futures))]
        if known is not None:
            return known.result()
        try:
            promise.set_result(self._make(epoch))
        except BaseException as error:
            promise.set_exception(error)
        return promise.result()


class Rows(NamedTuple):
    """Examples as arrays, with the fields of a batch."""

    ids: Array  # [B, T]
    mask: NDArray[np.bool_] | NDArray[np.int32]  # [B, T]
    segments: Array  # [B, T]


def assemble(shards: Shards, index: Index, examples: Array, specials: Specials) -> Rows:
    """Assemble examples into rows of the index's length, padded on the right."""
    length, count = index.length, len(examples)
    piece, row = _expand(index.first[examples], index.first[examples + 1] - index.first[examples])
    # In token order, so that each shard is read once and sequentially.
    order = np.argsort(index.start[piece])
    piece, row = piece[order], row[order]
    start, size, marks = index.start[piece], index.size[piece].astype(np.int64), index.marks[piece]
    place = row * length + index.column[piece]

    ids = np.full(count * length, specials.pad, np.int64)
    source, owner = _expand(start, size)
    ids[source + (place - start)[owner]] = _read(shards, source)
    opens, closes = marks & Mark.OPENS > 0, marks & Mark.CLOSES > 0
    ids[place[opens] - 1] = specials.cls
    ids[(place + size)[closes]] = specials.sep

    columns = np.arange(length)
    real = columns < _ends(index, examples)[:, None]
    splits = np.full(count, length)
    second = marks & Mark.SECOND > 0
    splits[row[second]] = index.column[piece[second]]
    segments = ((columns >= splits[:, None]) & real).astype(np.int64)
    if not index.packed:
        return Rows(ids.reshape(count, length), real, segments)
    texts = np.zeros(count * length, np.int32)
    texts[place[opens] - 1] = 1
    return Rows(ids.reshape(count, length), texts.reshape(count, length).cumsum(1, dtype=np.int32) * real, segments)


def _expand(starts: Array, counts: Array) -> tuple[Array, Array]:
    """Concatenate `range(starts[i], starts[i] + counts[i])` for all i; also return the i of each entry."""
    owner = np.repeat(np.arange(len(starts)), counts)
    before = np.cumsum(counts) - counts
    return np.arange(len(owner)) + (starts - before)[owner], owner


def _ends(index: Index, examples: Array) -> Array:
    """Return the number of columns that each example fills."""
    last = index.first[examples + 1] - 1
    closes = index.marks[last] & Mark.CLOSES > 0
    return index.column[last].astype(np.int64) + index.size[last] + closes


def _read(shards: Shards, positions: Array) -> Array:
    """Read the tokens at positions over all shards; the positions must be sorted by shard."""
    tokens = np.empty(len(positions), np.int64)
    base = low = 0
    for shard in shards.shards:
        end = base + len(shard.tokens)
        high = int(np.searchsorted(positions, end))
        tokens[low:high] = shard.tokens[positions[low:high] - base]
        base, low = end, high
    return tokens


_ROUNDS = 6


def shuffle_at(places: NDArray[np.int64], size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the entries at `places` of a shuffled `range(size)`, without computing the whole shuffle.

    A Feistel network permutes the next power of four; results outside of `range(size)` are permuted again until they
    are inside, which gives a permutation of `range(size)`. Any entry can be computed directly, so a
    restart is free and memory does not grow with the corpus.
    """
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    outside = _permuted(places, half, seed, epoch)
    result = outside.copy()
    left = np.flatnonzero(outside >= size)
    while len(left):
        result[left] = _permuted(result[left], half, seed, epoch)
        left = left[result[left] >= size]
    return result


def _permuted(places: NDArray[np.int64], half: int, seed: int, epoch: int) -> NDArray[np.int64]:
    low = (1 << half) - 1
    left, right = places >> half, places & low
    for number in range(_ROUNDS):
        left, right = right, left ^ (bits(seed, Stream.ORDER, epoch, number, right) & low)
    return left << half | right


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
        epoch, number = divmod(step, self.steps_per_epoch)
        size = len(self._index(epoch))
        return shuffle_at((number * self.batch + self._rows) % size, size, self.seed, epoch)

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
        epoch, number = divmod(step, self.steps_per_epoch)
        if number == self.steps_per_epoch // 2:
            self._index(epoch + 1)

    def _index(self, epoch: int) -> Index:
        return self._indexes[epoch if self.builder.varies_by_epoch else 0]

    def _build(self, epoch: int) -> Index:
        return self.builder.build(self.shards, self.length, self.seed, epoch)


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
        epoch, number = divmod(step, self.steps_per_epoch)
        order = self._orders[epoch if self.shuffle else 0]
        return order[number * self.batch : (number + 1) * self.batch]

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


class PackedShape(NamedTuple):
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
            self.features, chosen, packing, self.shape.rows_for(packing.rows), self.specials.pad, rows=rows, step=step
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


def cheapest_shape(batches: list[Array], widths: list[int]) -> PackedShape:
    """Return the shape with the fewest tokens, padding included, of those that are enough for nine of ten batches.

    batches: the lengths of the texts of each batch.
    """
    best, fewest = PackedShape(1, widths[0]), math.inf
    for width in widths:
        needed = np.array([pack(lengths, width).rows for lengths in batches])
        enough = np.quantile(needed, _FITTING_SHARE, method="higher")
        for rows in np.unique(needed[needed >= enough]).tolist():
            tokens = float((-(-needed // rows) * rows * width).mean())
            if tokens < fewest:
                best, fewest = PackedShape(rows, width), tokens
    return best
