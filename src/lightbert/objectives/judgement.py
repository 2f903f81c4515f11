"""The losses of fine-tuning as functions: sums over the examples, and how many are right."""

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from lightbert.nn.heads import JointLogits, SpanLogits

_ANSWERABLE_WEIGHT = 0.5


class Judged(NamedTuple):
    """Both are [] and summed; whoever asks divides."""

    loss: Tensor
    correct: Tensor


def judge_labels(logits: Tensor, targets: Tensor) -> Judged:
    """Cross-entropy of classes: logits [..., C] and targets [...] int64; a negative target is not judged."""
    logits, targets = logits.float().flatten(0, -2), targets.flatten()
    loss = F.cross_entropy(logits, targets, reduction="sum", ignore_index=-100)
    return Judged(loss, (logits.argmax(-1) == targets).sum())


def judge_sets(logits: Tensor, targets: Tensor) -> Judged:
    """Binary cross-entropy, the mean over the labels [B, C]; right is a row whose every label is."""
    logits = logits.float()
    loss = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(-1).sum()
    return Judged(loss, ((logits > 0) == (targets > 0.5)).all(-1).sum())


def judge_numbers(numbers: Tensor, targets: Tensor) -> Judged:
    """Squared error of [B]; no number is ever right."""
    loss = F.mse_loss(numbers.float(), targets, reduction="sum")
    return Judged(loss, loss.new_zeros(()))


def judge_answers(logits: SpanLogits, targets: Tensor) -> Judged:
    """Cross-entropy of the answer's first and last token, their mean; "no answer" is at [CLS], (0, 0) (BERT §4.2)."""
    return _ends(logits.start.float(), logits.end.float(), targets)


def judge_joint(logits: JointLogits, targets: Tensor) -> Judged:
    """The same, the end given the true start, plus half the cross-entropy of whether there is an answer (ELECTRA)."""
    judged = _ends(logits.start.float(), logits.end.float()[:, 0], targets)
    impossible = F.binary_cross_entropy_with_logits(logits.impossible.float(), targets[:, 2].float(), reduction="sum")
    return Judged(judged.loss + _ANSWERABLE_WEIGHT * impossible, judged.correct)


def _ends(start: Tensor, end: Tensor, targets: Tensor) -> Judged:
    first = F.cross_entropy(start, targets[:, 0], reduction="sum")
    last = F.cross_entropy(end, targets[:, 1], reduction="sum")
    right = (start.argmax(-1) == targets[:, 0]) & (end.argmax(-1) == targets[:, 1])
    return Judged((first + last) / 2, right.sum())
