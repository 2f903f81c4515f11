"""The interface between the training loop and what it trains."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from lightbert.data.batch import Batch
from lightbert.models import Model

if TYPE_CHECKING:
    from lightbert.objectives.vectors import VectorTransfer


@dataclass(frozen=True)
class Start:
    """What an objective of pre-training is built from."""

    recipe: Any
    """The keys of the run."""
    masker: Any
    """A `Masker`."""
    model: Callable[[Mapping[str, dict[str, Any]]], Model]
    """Returns the model to train with these heads, kind -> settings."""
    generator: Callable[[Model], Model]
    """Returns the generator of a model."""
    vectors: "VectorTransfer | None" = None


class Losses(NamedTuple):
    """The losses of a batch, or of one part of an accumulated batch."""

    total: Tensor
    """The loss to minimise: [], already divided by the counts of the whole batch."""
    tally: Tensor
    """Sums for the log: [M], detached, named by ``Objective.tallies``."""


class Objective(nn.Module):
    """Base class of objectives: it owns the trained parameters, computes the loss, and returns the models to save.

    Losses are sums over tokens or texts divided by counts over the *whole* batch, so that a step doesn't depend on how
    the batch is split across processes and accumulation: the loop sums the counts before any backward pass.
    """

    model: Model
    tallies: tuple[str, ...]
    title: ClassVar[str] = ""
    """What a model was pre-trained by, for its card."""

    @classmethod
    def start(cls, run: Start) -> Self:
        """Build the objective of a pre-training run."""
        raise NotImplementedError

    def prepare(self, batch: Batch) -> Batch:
        """Transform the batch before counting, for example mask it; runs on the device without gradients."""
        return batch

    def counts(self, batch: Batch) -> Tensor:
        """Return the denominators of the loss, one per term."""
        raise NotImplementedError

    def forward(self, batch: Batch, counts: Tensor) -> Losses:
        """Compute the losses of a prepared batch, divided by the counts of the whole batch."""
        raise NotImplementedError

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """Turn the summed tallies of one or more steps into metrics; must include "loss"."""
        raise NotImplementedError

    def models(self) -> dict[str, Model]:
        """Return the models to save by folder name; "final" is the trained model."""
        return {"final": self.model}


def ratio(tally: Mapping[str, float], part: str, whole: str) -> float:
    """Return the ratio of two tallies; 0 if the denominator is 0."""
    return tally[part] / tally[whole] if tally[whole] else 0.0


def stack(*sums: Tensor) -> Tensor:
    """Stack sums into one tensor, in double precision so that counts stay exact."""
    return torch.stack([value.detach().double() for value in sums])
