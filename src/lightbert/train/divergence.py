"""Errors for runs that diverge: nothing that is not finite is saved, and no such run ends as a success."""

from collections.abc import Mapping
from math import isfinite

import torch
from torch import nn

from lightbert.errors import InputError
from lightbert.train.distributed import World
from lightbert.train.run import Position
from lightbert.train.sharding import local_part

MAX_SKIPPED_IN_A_ROW = 5


def divergence_error(problem: str, lr: float) -> InputError:
    """Return an error with the remedy."""
    return InputError(f"{problem}; try a learning rate below lr={lr} in another folder out=")


def check_weights(module: nn.Module, world: World, step: int, lr: float) -> None:
    """Raise an error if a weight of any process is not finite."""
    finite = torch.stack([weight.detach().isfinite().all() for weight in map(local_part, module.parameters())]).all()
    if world.any(not finite.item()):
        raise divergence_error(f"the weights are not finite after step {step}: training has diverged", lr)


def check_outcome(metrics: Mapping[str, float], at: Position, lr: float) -> None:
    """Raise an error if a run ends without having learned anything."""
    bad = next((name for name, value in metrics.items() if name.endswith("loss") and not isfinite(value)), "")
    if bad:
        raise divergence_error(f"{bad} on held-out data is not finite: training has diverged", lr)
    if at.step and at.bad_in_a_row in (*range(2, MAX_SKIPPED_IN_A_ROW + 1), at.step):
        raise divergence_error(f"the last {at.bad_in_a_row} steps were skipped: the gradients were not finite", lr)
