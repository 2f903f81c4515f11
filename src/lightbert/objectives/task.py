"""Fine-tuning: the loss of a head's outputs for texts, tokens or answers against a task's targets."""

from collections.abc import Mapping

from torch import Tensor

from lightbert.data.batches.batch import Batch
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.heads.span import answer_positions
from lightbert.objectives.objective import Losses, Objective, ratio, stack
from lightbert.objectives.task_losses import (
    LossSum,
    joint_span_loss,
    label_loss,
    multilabel_loss,
    regression_loss,
    span_loss,
)


class TaskObjective(Objective):
    """One head's loss per example: a text, or where each token has a target of its own, a token.

    The head and the targets decide: classify with classes [B] is cross-entropy, with a yes or no for each label [B, C]
    binary cross-entropy; regress is the squared error; tokens is cross-entropy where the target is not -100; span and
    beam read answers [B, 3].
    """

    tallies = ("loss", "examples", "correct")

    def __init__(self, model: Model, head: str) -> None:
        super().__init__()
        if head not in _HEADS:
            raise InputError(f"the {head} head is not fine-tuned on tasks; use one of {', '.join(_HEADS)}")
        if head not in model.heads:
            raise InputError(f"the model has no {head} head to train; add it with add_head")
        self.model, self.head = model, head

    def counts(self, batch: Batch) -> Tensor:
        """The tokens that have a target, or the rows."""
        assert batch.targets is not None
        examples = (batch.targets >= 0).sum() if self.head == "tokens" else batch.rows.new_full((), len(batch.rows))
        return stack(examples).float()

    def forward(self, batch: Batch, counts: Tensor) -> Losses:
        """The mean loss per example."""
        states = self.model(batch.ids, batch.mask, batch.segments)
        sums = self._loss(states, batch)
        tally = stack(sums.loss, self.counts(batch)[0], sums.correct)
        return Losses(sums.loss / counts[0].clamp(min=1), tally)

    def _loss(self, states: Tensor, batch: Batch) -> LossSum:
        head, targets = self.model.heads[self.head], batch.targets
        assert targets is not None
        match self.head:
            case "span" | "beam":
                allowed = answer_positions(batch.ids, batch.mask, batch.segments)
                if self.head == "span":
                    return span_loss(head(states, allowed), targets)
                return joint_span_loss(head(states, allowed, targets[:, 0]), targets)
            case "regress":
                return regression_loss(head(states), targets)
        loss = multilabel_loss if targets.is_floating_point() else label_loss
        return loss(head(states), targets)

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """The loss, and the share of examples whose labels are all correct; a regression has no such share."""
        result = {"loss": ratio(tally, "loss", "examples")}
        return result if self.head == "regress" else result | {"accuracy": ratio(tally, "correct", "examples")}

    def models(self) -> dict[str, Model]:
        """The one model."""
        return {"final": self.model}


_HEADS = ("classify", "regress", "tokens", "span", "beam")
