"""The fine-tuning losses as functions: sums over the examples, and the number of correct predictions."""

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from lightbert.data.features import IGNORE_INDEX
from lightbert.nn.heads import JointLogits, SpanLogits

_ANSWERABLE_WEIGHT = 0.5


class LossSum(NamedTuple):
    """Sums over the examples, both []; the caller divides by their number."""

    loss: Tensor
    correct: Tensor


def label_loss(logits: Tensor, targets: Tensor) -> LossSum:
    """Cross-entropy of classes: logits [..., C] and targets [...] int64; a target of -100 is ignored."""
    logits, targets = logits.float().flatten(0, -2), targets.flatten()
    loss = F.cross_entropy(logits, targets, reduction="sum", ignore_index=IGNORE_INDEX)
    return LossSum(loss, (logits.argmax(-1) == targets).sum())


def multilabel_loss(logits: Tensor, targets: Tensor) -> LossSum:
    """Binary cross-entropy, the mean over the labels [B, C]; a row is correct when all of its labels are."""
    logits = logits.float()
    loss = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(-1).sum()
    return LossSum(loss, ((logits > 0) == (targets > 0.5)).all(-1).sum())


def regression_loss(numbers: Tensor, targets: Tensor) -> LossSum:
    """Squared error of [B]; ``correct`` is 0."""
    loss = F.mse_loss(numbers.float(), targets, reduction="sum")
    return LossSum(loss, loss.new_zeros(()))


def span_loss(logits: SpanLogits, targets: Tensor) -> LossSum:
    """Cross-entropy of the answer's first and last token, their mean; "no answer" is at [CLS], (0, 0) (BERT §4.2)."""
    return _ends(logits.start.float(), logits.end.float(), targets)


def joint_span_loss(logits: JointLogits, targets: Tensor) -> LossSum:
    """`span_loss`, the end given the true start, and half the cross-entropy of whether there is an answer (ELECTRA)."""
    ends = _ends(logits.start.float(), logits.end.float()[:, 0], targets)
    impossible = F.binary_cross_entropy_with_logits(logits.impossible.float(), targets[:, 2].float(), reduction="sum")
    return LossSum(ends.loss + _ANSWERABLE_WEIGHT * impossible, ends.correct)


def _ends(start: Tensor, end: Tensor, targets: Tensor) -> LossSum:
    first = F.cross_entropy(start, targets[:, 0], reduction="sum")
    last = F.cross_entropy(end, targets[:, 1], reduction="sum")
    correct = (start.argmax(-1) == targets[:, 0]) & (end.argmax(-1) == targets[:, 1])
    return LossSum((first + last) / 2, correct.sum())
