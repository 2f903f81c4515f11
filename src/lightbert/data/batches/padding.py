"""Rows of any length to one rectangle."""

import numpy as np
import torch
from numpy.typing import NDArray

from lightbert.data.batches.batch import Batch
from lightbert.data.examples.features import Features

UNJUDGED = -100
"""The target of a token that is not asked about, such as padding."""


def padded(
    features: Features,
    chosen: NDArray[np.int64],
    length: int,
    pad: int,
    *,
    rows: NDArray[np.int64] | None = None,
    step: int = 0,
) -> Batch:
    """Put the chosen rows into a batch as wide as `length`; `rows` are their numbers within the step's whole batch."""
    places = np.arange(length)
    mask = places < features.lengths[chosen, None]  # [B, T]
    # Beyond the end of a row any token will do, so long as there is one.
    at = np.minimum(features.starts[chosen, None] + places, max(len(features.tokens) - 1, 0))
    targets = None
    if features.targets is not None:
        picked = np.where(mask, features.targets[at], UNJUDGED) if features.per_token else features.targets[chosen]
        targets = torch.from_numpy(np.ascontiguousarray(picked))
    return Batch(
        ids=torch.from_numpy(np.where(mask, features.tokens[at], pad).astype(np.int64)),
        mask=torch.from_numpy(mask),
        segments=torch.from_numpy((mask & (places >= features.seconds[chosen, None])).astype(np.int64)),
        rows=torch.from_numpy(np.arange(len(chosen)) if rows is None else rows),
        step=torch.tensor(step),
        targets=targets,
    )
