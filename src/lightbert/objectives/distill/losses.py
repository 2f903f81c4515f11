"""The distillation losses as pure functions (MobileBERT §3.5).

Each returns a sum over tokens or predictions. The caller divides it by their number in the whole batch of a step, so
that the step doesn't depend on how the batch is split. ``keep`` [B, T] is 1 for tokens to compare and 0 for the others.
Everything is computed in fp32. The teacher is the first argument and the target.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_EPS = 1e-12


def feature_map_transfer(teacher: Tensor, student: Tensor, keep: Tensor) -> Tensor:
    """Eq. 2: squared differences of two maps [B, T, D], averaged over channels, summed over tokens -> []."""
    each = (teacher.float() - student.float()).square().mean(dim=-1)  # [B, T]
    return _total(each, keep)


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
    each = (target.exp() * difference).sum(dim=-1).mean(dim=1)  # [B, T]
    return _total(each, keep)


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


def _total(each: Tensor, keep: Tensor) -> Tensor:
    """Sum over the kept elements; the others may hold any value, NaN included."""
    return each.masked_fill(keep == 0, 0.0).sum()
