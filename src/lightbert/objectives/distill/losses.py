"""The losses of knowledge transfer as pure functions (MobileBERT §3.5).

Each gives sums over tokens or predictions, to be divided by how many there are in the whole batch of a step, so that
the step does not depend on how that batch is shared out. ``keep`` [B, T] is 1 for tokens that count and 0 for the
others. Everything is computed in fp32. The teacher comes first and is the target.
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
    """The first part of the decomposition: Eq. 2 of maps [B, T, D] in which every token is normalised -> []."""
    return feature_map_transfer(_normalised(teacher), _normalised(student), keep)


class Moments(NamedTuple):
    """What normalising a map takes away."""

    mean: Tensor  # [..., T]
    variance: Tensor  # [..., T]


def moments(states: Tensor) -> Moments:
    """Mean and variance over the channels of each token of a map [..., T, D]."""
    variance, mean = torch.var_mean(states.float(), dim=-1, correction=0)
    return Moments(mean, variance)


def statistics_transfer(teacher: Moments, student: Moments, keep: Tensor) -> Moments:
    """The second part of the decomposition: squared difference of means, absolute difference of variances -> [] each.

    The teacher's have a first dimension more, [K, B, T], over which the average is taken: one layer, or several that
    the student's one layer is compared with.
    """
    mean = (teacher.mean - student.mean).square().mean(dim=0)  # [B, T]
    variance = (teacher.variance - student.variance).abs().mean(dim=0)
    return Moments(_total(mean, keep), _total(variance, keep))


def attention_transfer(teacher: Tensor, student: Tensor, keep: Tensor) -> Tensor:
    """Eq. 3: KL(teacher ‖ student) of attention, averaged over heads, summed over queries -> [].

    Both are scores [B, H, T, T] before the softmax, with hidden keys at -inf. The release minimises the cross-entropy,
    which is larger by the teacher's entropy: a constant that has no gradient, and without which 0 means equality.
    """
    target, guess = torch.log_softmax(teacher.float(), dim=-1), torch.log_softmax(student.float(), dim=-1)
    # Where a key is hidden, both are -inf.
    difference = (target - guess).masked_fill(teacher == float("-inf"), 0.0)
    each = (target.exp() * difference).sum(dim=-1).mean(dim=1)  # [B, T]
    return _total(each, keep)


class SoftPrediction(NamedTuple):
    """Cross-entropies with what stood there and with what the teacher says, summed over the predictions."""

    mlm: Tensor  # []
    kd: Tensor  # []

    def mixed(self, alpha: float) -> Tensor:
        """The cross-entropy with the labels α·onehot + (1-α)·softmax(teacher), which is linear in them (Eq. 4)."""
        return alpha * self.mlm + (1 - alpha) * self.kd


def soft_prediction(teacher: Tensor | None, student: Tensor, targets: Tensor, weights: Tensor) -> SoftPrediction:
    """Logits [B, P, V], targets [B, P] and weights [B, P] (0 = filler); without a teacher ``kd`` is 0."""
    guess = torch.log_softmax(student.float(), dim=-1)
    hard = -guess.gather(-1, targets.unsqueeze(-1)).squeeze(-1)  # [B, P]
    mlm = _total(hard, weights)
    if teacher is None:
        return SoftPrediction(mlm, torch.zeros_like(mlm))
    soft = -(torch.softmax(teacher.float(), dim=-1) * guess).sum(dim=-1)
    return SoftPrediction(mlm, _total(soft, weights))


def _normalised(states: Tensor) -> Tensor:
    return F.layer_norm(states.float(), states.shape[-1:], eps=_EPS)


def _total(each: Tensor, keep: Tensor) -> Tensor:
    """Sum what counts. What does not may be anything, even no number."""
    return each.masked_fill(keep == 0, 0.0).sum()
