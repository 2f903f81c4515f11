"""The distillation losses (MobileBERT §3.5): pure functions, and the modules that combine them.

Each function returns a sum over tokens or predictions. The caller divides it by their number in the whole batch of
a step, so that it does not depend on how the batch is split. ``keep`` [B, T] is 1 for tokens to compare and 0 for the
others. Everything is computed in fp32. The teacher is the first argument and the target.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.data.batch import Batch
from lightbert.nn.encoder import Encoder
from lightbert.nn.init import Initial, Uniform
from lightbert.objectives.distill.stages import Transfer

_EPS = 1e-12


def feature_map_transfer(teacher: Tensor, student: Tensor, keep: Tensor) -> Tensor:
    """Eq. 2: squared differences of two maps [B, T, D], averaged over channels, summed over tokens -> []."""
    errors = (teacher.float() - student.float()).square().mean(dim=-1)  # [B, T]
    return _total(errors, keep)


def normalised_transfer(teacher: Tensor, student: Tensor, keep: Tensor) -> Tensor:
    """First part of the decomposition: Eq. 2 of maps [B, T, D] with every token normalised -> []."""
    return feature_map_transfer(_normalised(teacher), _normalised(student), keep)


class Moments(NamedTuple):
    """The mean and variance that normalisation removes from a map."""

    mean: Tensor  # [..., T]
    variance: Tensor  # [..., T]


def moments(states: Tensor) -> Moments:
    """Return the mean and variance over the channels of each token of a map [..., T, D]."""
    variance, mean = torch.var_mean(states.float(), dim=-1, correction=0)
    return Moments(mean, variance)


def statistics_transfer(teacher: Moments, student: Moments, keep: Tensor) -> Moments:
    """Second part of the decomposition: squared difference of means, absolute difference of variances -> [] each.

    The teacher's moments have an extra first dimension, [K, B, T], for the K layers that the student's layer is
    compared with; the result is their average.
    """
    mean = (teacher.mean - student.mean).square().mean(dim=0)  # [B, T]
    variance = (teacher.variance - student.variance).abs().mean(dim=0)
    return Moments(_total(mean, keep), _total(variance, keep))


def attention_transfer(teacher: Tensor, student: Tensor, keep: Tensor) -> Tensor:
    """Eq. 3: KL(teacher ‖ student) of attention, averaged over heads, summed over queries -> [].

    Both are scores [B, H, T, T] before the softmax, with masked keys at -inf. The released code minimises the
    cross-entropy, which is larger by the teacher's entropy, a constant without gradient; the KL divergence is 0 if both
    are equal.
    """
    target, prediction = torch.log_softmax(teacher.float(), dim=-1), torch.log_softmax(student.float(), dim=-1)
    # Both are -inf at masked keys.
    difference = (target - prediction).masked_fill(teacher == float("-inf"), 0.0)
    errors = (target.exp() * difference).sum(dim=-1).mean(dim=1)  # [B, T]
    return _total(errors, keep)


class SoftPrediction(NamedTuple):
    """Cross-entropies with the true tokens and with the teacher's distribution, summed over the predictions."""

    mlm: Tensor  # []
    kd: Tensor  # []

    def mixed(self, alpha: float) -> Tensor:
        """The cross-entropy with targets α·onehot + (1-α)·softmax(teacher), which is linear in them (Eq. 4)."""
        return alpha * self.mlm + (1 - alpha) * self.kd


def soft_prediction(teacher: Tensor | None, student: Tensor, targets: Tensor, weights: Tensor) -> SoftPrediction:
    """Compare logits [B, P, V] with targets [B, P]; weights [B, P] are 0 for filler. ``kd`` is 0 without a teacher."""
    log_probs = torch.log_softmax(student.float(), dim=-1)
    hard = -log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)  # [B, P]
    mlm = _total(hard, weights)
    if teacher is None:
        return SoftPrediction(mlm, torch.zeros_like(mlm))
    soft = -(torch.softmax(teacher.float(), dim=-1) * log_probs).sum(dim=-1)
    return SoftPrediction(mlm, _total(soft, weights))


def _normalised(states: Tensor) -> Tensor:
    return F.layer_norm(states.float(), states.shape[-1:], eps=_EPS)


def _total(values: Tensor, keep: Tensor) -> Tensor:
    """Sum over the kept elements; the others may hold any value, NaN included."""
    return values.masked_fill(keep == 0, 0.0).sum()


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
            at = attention_transfer(scores[0][:, : self.heads], scores[1][:, : self.heads], keep)
        if by.feature_maps == "plain":
            return LayerLosses(by.feature * feature_map_transfer(teacher, student, keep), at)
        maps = normalised_transfer(teacher, student, keep)
        statistics = moments(teacher.unsqueeze(0)) if statistics is None else statistics
        mean, variance = statistics_transfer(statistics, moments(student), keep)
        return LayerLosses(by.feature * maps + by.mean * mean + by.variance * variance, at)


class DistilledLosses(NamedTuple):
    """Sums over the masked tokens of a batch, without filler."""

    loss: SoftPrediction
    correct: Tensor  # [], number of correct predictions


class DistilledPrediction(nn.Module):
    """Logits and losses at the masked positions only. A module, so that it can be compiled."""

    def forward(
        self, student: Encoder, states: Tensor, teacher: Encoder | None, teacher_states: Tensor | None, batch: Batch
    ) -> DistilledLosses:
        """Compute the losses from the last states [B, T, D] of student and teacher, whose widths may differ."""
        assert batch.positions is not None
        assert batch.targets is not None
        assert batch.weights is not None
        logits = _logits(student, states, batch.positions)  # [B, P, V]
        target = (
            None if teacher is None or teacher_states is None else _logits(teacher, teacher_states, batch.positions)
        )
        hits = (logits.argmax(-1) == batch.targets) & (batch.weights != 0)
        return DistilledLosses(soft_prediction(target, logits, batch.targets, batch.weights), hits.sum())


def _logits(model: Encoder, states: Tensor, positions: Tensor) -> Tensor:
    index = positions.unsqueeze(-1).expand(-1, -1, states.shape[-1])
    logits: Tensor = model.heads["mlm"](states.gather(1, index), model.table)
    return logits
