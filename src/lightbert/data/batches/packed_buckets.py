"""Batches of packed rows, by step number: one shape for nearly all steps."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbert.data.batches.batch import Batch
from lightbert.data.batches.buckets import Buckets
from lightbert.data.batches.packing import Packing, pack
from lightbert.data.batches.padding import pack_rows
from lightbert.data.examples.features import Features

Array = NDArray[np.int64]

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
