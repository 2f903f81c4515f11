"""The fine-tuning objective: the loss between a head's outputs and a task's targets."""

from collections.abc import Mapping
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from lightbert.data.batch import Batch
from lightbert.data.features import IGNORE_INDEX
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.heads import (
    BeamSpan,
    Classification,
    JointLogits,
    Regression,
    Span,
    SpanLogits,
    TokenClassification,
    answer_positions,
)
from lightbert.nn.pooling import PackedTexts
from lightbert.objectives.objective import Losses, Objective, ratio, stack

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


class TaskObjective(Objective):
    """The mean loss of one head per example, which is a text, or a token for the "tokens" head.

    The head and the targets select the loss: "classify" with classes [B] uses cross-entropy, with multi-hot labels
    [B, C] binary cross-entropy; a regression uses the squared error; "tokens" uses cross-entropy and ignores targets
    of -100; "span" and "beam" take answers [B, 3]. The loss of packed rows is that of their texts in padded rows.
    """

    tallies = ("loss", "examples", "correct")

    def __init__(self, model: Model, head: str) -> None:
        super().__init__()
        if head not in model.heads:
            raise InputError(f"the model has no '{head}' head; add it with add_head(model, '{head}')")
        if not isinstance(model.heads[head], _FINE_TUNED):
            raise InputError(f"head must be one that is fine-tuned, such as classify or tokens, got '{head}'")
        self.model, self.head = model, head

    def counts(self, batch: Batch) -> Tensor:
        """Count the tokens that have a target, or the texts."""
        assert batch.targets is not None
        per_token = isinstance(self.model.heads[self.head], TokenClassification)
        examples = (batch.targets >= 0).sum() if per_token else batch.rows.new_full((), len(batch.rows))
        return stack(examples).float()

    def forward(self, batch: Batch, counts: Tensor) -> Losses:
        """Compute the mean loss per example."""
        states = self.model(batch.ids, batch.mask, batch.segments)
        sums = self._loss(states, batch)
        tally = stack(sums.loss, self.counts(batch)[0], sums.correct)
        return Losses(sums.loss / counts[0].clamp(min=1), tally)

    def _loss(self, states: Tensor, batch: Batch) -> LossSum:
        head, targets = self.model.heads[self.head], batch.targets
        places = None if batch.starts is None or batch.lengths is None else PackedTexts(batch.starts, batch.lengths)
        assert targets is not None
        match head:
            case Span() | BeamSpan():
                segments, mask = batch.segments, batch.mask
                if places is not None:
                    states, segments, mask = places.unpack(states), places.unpack(segments), places.real(mask.shape[1])
                allowed = answer_positions(segments, mask)
                if isinstance(head, Span):
                    return span_loss(head(states, allowed), targets)
                return joint_span_loss(head(states, allowed, targets[:, 0]), targets)
            case TokenClassification():
                return label_loss(head(states), targets)
        outputs = head(states, mask=batch.mask, places=places, ids=batch.ids)
        if isinstance(head, Regression):
            return regression_loss(outputs, targets)
        return (multilabel_loss if targets.is_floating_point() else label_loss)(outputs, targets)

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """Return the loss and, except for regression, the share of examples whose labels are all correct."""
        result = {"loss": ratio(tally, "loss", "examples")}
        if isinstance(self.model.heads[self.head], Regression):
            return result
        return result | {"accuracy": ratio(tally, "correct", "examples")}


_FINE_TUNED = (Classification, Regression, TokenClassification, Span, BeamSpan)
