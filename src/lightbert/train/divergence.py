"""Divergence: weights and losses that are not finite, which end a run with an error instead of a model."""

import math
from collections.abc import Mapping

import torch
from torch import nn

from lightbert.errors import InputError
from lightbert.train.distributed import World
from lightbert.train.run import Position
from lightbert.train.sharding import local_part

MAX_SKIPPED_IN_A_ROW = 5


def check_weights(model: nn.Module, at: Position, lr: float, world: World) -> None:
    """Raise an error instead of saving weights that are not finite; every process must call this."""
    finite = torch.stack([local_part(p.detach()).isfinite().all() for p in model.parameters()]).all()
    if world.any(not finite.item()):
        raise diverged(f"the weights are not finite after step {at.step}: training has diverged", lr)


def check_outcome(held_out: Mapping[str, float], at: Position, lr: float) -> None:
    """Raise an error if a run ends without having learned anything."""
    bad = next((name for name, value in held_out.items() if name.endswith("loss") and not math.isfinite(value)), "")
    if bad:
        raise diverged(f"{bad} on held-out data is not finite: training has diverged", lr)
    # A single skipped step at the end is no reason to discard the run, unless it was the only one.
    if at.bad_in_a_row > 1 or 0 < at.bad_in_a_row == at.step:
        raise diverged(f"the last {at.bad_in_a_row} steps were skipped: the gradients were not finite", lr)


def diverged(problem: str, lr: float) -> InputError:
    """Return an error with the remedy."""
    return InputError(f"{problem}; try a learning rate below lr={lr} in another folder out=")
