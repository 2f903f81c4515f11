"""What of a teacher's layer a student's layer is to imitate, and by how much."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.distributions import Initial, Uniform
from lightbert.objectives.distill import losses
from lightbert.objectives.distill.losses import Moments


@dataclass(frozen=True)
class Transfer:
    """Weights and choices; the default is the release, with two mistakes of it put right.

    feature_maps: "plain" is Eq. 2, "decomposed" its release: normalised maps, means and variances; ``feature`` weighs
    the maps of either. ``attention`` = 0 switches attention transfer off.
    statistics: "layer" compares means and variances with those of the teacher's same layer. Deviation: the release
    compares each with those of all layers of the teacher and its embeddings ("released"), by a slip of its loop.
    padding: "excluded" takes averages over the text. Deviation: the release takes them over the padding too
    ("released").
    maps: "linear" learns a map per layer from the student's width to the teacher's, used in training only.
    """

    feature_maps: Literal["decomposed", "plain"] = "decomposed"
    feature: float = 100.0
    mean: float = 5000.0
    variance: float = 5.0
    attention: float = 1.0
    statistics: Literal["layer", "released"] = "layer"
    padding: Literal["excluded", "released"] = "excluded"
    maps: Literal["none", "linear"] = "none"

    def __post_init__(self) -> None:
        for name in ("feature", "mean", "variance", "attention"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} = {getattr(self, name)} must not be negative: 0 leaves the term out")

    @property
    def compares_maps(self) -> bool:
        """Whether any term of the feature maps weighs anything."""
        return bool(self.feature or (self.feature_maps == "decomposed" and (self.mean or self.variance)))

    @property
    def compares_all_layers(self) -> bool:
        """Whether every layer needs all states of the teacher."""
        return self.statistics == "released" and self.feature_maps == "decomposed"


class Compared(NamedTuple):
    """How far a layer of the student is from the teacher's, summed over the tokens that count."""

    fmt: Tensor  # [], feature maps: all terms with their weights
    at: Tensor  # [], attention, without its weight


class LearnedMap(nn.Linear):
    """A map from the student's width to the teacher's, learned with the student and used in training only."""

    def initial_weights(self) -> Initial:
        """PyTorch's default for a dense layer."""
        bound = 1 / math.sqrt(self.in_features)
        return {"weight": Uniform(bound), "bias": Uniform(bound)}


class LayerTransfer(nn.Module):
    """Compares one layer with the teacher's. A module so that it can be compiled."""

    def __init__(self, transfer: Transfer, heads: int) -> None:
        super().__init__()
        self.transfer, self.heads = transfer, heads

    def forward(
        self,
        teacher: Tensor,
        student: Tensor,
        keep: Tensor,
        scores: tuple[Tensor, Tensor] | None = None,
        statistics: Moments | None = None,
    ) -> Compared:
        """States [B, T, D], what counts [B, T], and the scores of both [B, H, T, T] if attention is transferred.

        Of the scores only the heads that both have are compared: the first ones. ``statistics`` [K, B, T] are those
        of the teacher to compare with, if not its own layer's.
        """
        by = self.transfer
        at = torch.zeros((), device=student.device)
        if scores is not None:
            at = losses.attention_transfer(scores[0][:, : self.heads], scores[1][:, : self.heads], keep)
        if by.feature_maps == "plain":
            return Compared(by.feature * losses.feature_map_transfer(teacher, student, keep), at)
        maps = losses.normalised_transfer(teacher, student, keep)
        statistics = losses.moments(teacher.unsqueeze(0)) if statistics is None else statistics
        mean, variance = losses.statistics_transfer(statistics, losses.moments(student), keep)
        return Compared(by.feature * maps + by.mean * mean + by.variance * variance, at)
