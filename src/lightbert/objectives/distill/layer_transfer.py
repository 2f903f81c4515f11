"""The transfer losses between a layer of the student and the same layer of the teacher."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightbert.nn.init import Initial, Uniform
from lightbert.objectives.distill import losses
from lightbert.objectives.distill.losses import Moments
from lightbert.objectives.distill.transfer_settings import Transfer


class LayerLosses(NamedTuple):
    """The transfer losses of one layer, summed over the compared tokens."""

    fmt: Tensor  # [], feature map transfer: all terms, weighted
    at: Tensor  # [], attention transfer, unweighted


class LearnedMap(nn.Linear):
    """A linear map from the student's width to the teacher's, trained with the student and used in training only."""

    def initial_weights(self) -> Initial:
        """Return PyTorch's default initialisation of a linear layer."""
        bound = 1 / math.sqrt(self.in_features)
        return {"weight": Uniform(bound), "bias": Uniform(bound)}


class LayerTransfer(nn.Module):
    """Compute the transfer losses of one layer. A module, so that it can be compiled."""

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
    ) -> LayerLosses:
        """Compare states [B, T, D] at the tokens where ``keep`` [B, T] is set.

        scores: attention scores of teacher and student, [B, H, T, T]; only the first heads, which both have, are
        compared. statistics: the teacher's moments [K, B, T] to compare with; None = those of ``teacher``.
        """
        by = self.transfer
        at = torch.zeros((), device=student.device)
        if scores is not None:
            at = losses.attention_transfer(scores[0][:, : self.heads], scores[1][:, : self.heads], keep)
        if by.feature_maps == "plain":
            return LayerLosses(by.feature * losses.feature_map_transfer(teacher, student, keep), at)
        maps = losses.normalised_transfer(teacher, student, keep)
        statistics = losses.moments(teacher.unsqueeze(0)) if statistics is None else statistics
        mean, variance = losses.statistics_transfer(statistics, losses.moments(student), keep)
        return LayerLosses(by.feature * maps + by.mean * mean + by.variance * variance, at)
