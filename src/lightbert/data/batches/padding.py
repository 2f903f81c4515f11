"""Rows of any length as padded or packed batches of tensors."""

import numpy as np
import torch
from numpy.typing import NDArray

from lightbert.data.batches.batch import Batch
from lightbert.data.batches.grouping import padded_rows
from lightbert.data.batches.packing import Packing, packed_rows
from lightbert.data.examples.features import IGNORE_INDEX, Features

Array = NDArray[np.int64]


def pad_rows(
    features: Features,
    chosen: Array,
    length: int,
    pad: int,
    *,
    rows: Array | None = None,
    step: int = 0,
) -> Batch:
    """Pad the chosen rows to `length`; `rows` are their row numbers in the whole batch of the step."""
    padded = padded_rows(features, chosen, length, pad)
    return Batch(
        ids=torch.from_numpy(padded.ids),
        mask=torch.from_numpy(padded.mask),
        segments=torch.from_numpy(padded.segments),
        rows=torch.from_numpy(np.arange(len(chosen)) if rows is None else rows),
        step=torch.tensor(step),
        targets=_targets(features, chosen, padded.mask, padded.at),
    )


def pack_rows(
    features: Features, chosen: Array, packing: Packing, height: int, pad: int, *, rows: Array, step: int
) -> Batch:
    """Put the chosen rows of the features, as texts, into `height` packed rows; `rows` are their numbers in the batch.

    The texts keep their order, whatever their places.
    """
    packed = packed_rows(features, chosen, packing.starts, (height, packing.width), pad, len(chosen))
    return Batch(
        ids=torch.from_numpy(packed.ids),
        mask=torch.from_numpy(packed.texts),
        segments=torch.from_numpy(packed.segments),
        rows=torch.from_numpy(rows),
        step=torch.tensor(step),
        targets=_targets(features, chosen, packed.texts > 0, packed.at),
        starts=torch.from_numpy(packed.starts),
        lengths=torch.from_numpy(packed.lengths),
    )


def _targets(features: Features, chosen: Array, real: NDArray[np.bool_], at: Array) -> torch.Tensor | None:
    if features.targets is None:
        return None
    picked = np.where(real, features.targets[at], IGNORE_INDEX) if features.per_token else features.targets[chosen]
    return torch.from_numpy(np.ascontiguousarray(picked))
