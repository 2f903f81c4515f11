"""How far a layer of the student is from the teacher's."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightbert.nn.distributions import Initial, Uniform
from lightbert.objectives.distill import losses
from lightbert.objectives.distill.losses import Moments
from lightbert.objectives.distill.transfer_settings import Transfer


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
