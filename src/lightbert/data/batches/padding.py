"""Rows of any length as padded batches of tensors."""

import numpy as np
import torch
from numpy.typing import NDArray

from lightbert.data.batches.batch import Batch
from lightbert.data.batches.grouping import padded_rows
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
    targets = None
    if features.targets is not None:
        if features.per_token:
            picked = np.where(padded.mask, features.targets[padded.at], IGNORE_INDEX)
        else:
            picked = features.targets[chosen]
        targets = torch.from_numpy(np.ascontiguousarray(picked))
    return Batch(
        ids=torch.from_numpy(padded.ids),
        mask=torch.from_numpy(padded.mask),
        segments=torch.from_numpy(padded.segments),
        rows=torch.from_numpy(np.arange(len(chosen)) if rows is None else rows),
        step=torch.tensor(step),
        targets=targets,
    )
