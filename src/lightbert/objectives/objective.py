"""What the loop asks of everything that can be trained."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightbert.data.batches.batch import Batch
from lightbert.models import Model


class Losses(NamedTuple):
    """The result of one part of a step's batch."""

    total: Tensor
    """What is minimised: [], already divided by the counts of the whole batch."""
    tally: Tensor
    """Sums for the log, [M], detached; ``Objective.tallies`` names them."""


class Objective(nn.Module):
    """A module that says what is trained (its parameters), what is minimised and what is saved.

    Losses are sums over tokens or texts divided by counts over the *whole* batch, so that a step is the same however
    the batch is shared out between processes and accumulation: the loop adds the counts up before any backward pass.
    """

    tallies: tuple[str, ...]

    def prepare(self, batch: Batch) -> Batch:
        """Mask the batch, or whatever comes before the counts are known; runs on the device, without gradient."""
        return batch

    def counts(self, batch: Batch) -> Tensor:
        """What the losses are divided by: one number per term."""
        raise NotImplementedError

    def forward(self, batch: Batch, counts: Tensor) -> Losses:
        """Compute the losses of a prepared batch, divided by the counts of the whole."""
        raise NotImplementedError

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """Turn the sums of a step, or of many, into the numbers that people read; "loss" is among them."""
        raise NotImplementedError

    def models(self) -> dict[str, Model]:
        """The models to save, by the name of their folder; "final" is the trained one."""
        raise NotImplementedError


def ratio(tally: Mapping[str, float], part: str, whole: str) -> float:
    """One sum over another; 0 when there was nothing to count."""
    return tally[part] / tally[whole] if tally[whole] else 0.0


def stack(*sums: Tensor) -> Tensor:
    """Put the sums of a tally into one tensor, in double so that counts stay exact."""
    return torch.stack([value.detach().double() for value in sums])
