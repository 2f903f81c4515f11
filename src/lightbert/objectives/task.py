"""Fine-tuning: the loss of a head's outputs for texts, tokens or answers against a task's targets."""

from collections.abc import Mapping

from torch import Tensor

from lightbert.data.batches.batch import Batch
from lightbert.errors import InputError
from lightbert.nn.encoder import Encoder
from lightbert.nn.heads import BeamSpan
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

    def __init__(self, model: Encoder, head: str) -> None:
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
            case "span":
                return span_loss(head(states, allowed(batch)), targets)
            case "beam":
                return joint_span_loss(head(states, allowed(batch), targets[:, 0]), targets)
            case "regress":
                return regression_loss(head(states), targets)
        loss = multilabel_loss if targets.is_floating_point() else label_loss
        return loss(head(states), targets)

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """The loss, and the share of examples whose labels are all correct; a regression has no such share."""
        result = {"loss": ratio(tally, "loss", "examples")}
        return result if self.head == "regress" else result | {"accuracy": ratio(tally, "correct", "examples")}

    def models(self) -> dict[str, Encoder]:
        """The one model."""
        return {"final": self.model}


_HEADS = ("classify", "regress", "tokens", "span", "beam")


def allowed(batch: Batch) -> Tensor:
    """Where an answer may start and end: in the second segment, or at [CLS], which means that there is none; [B, T]."""
    places = (batch.segments == 1) & (batch.mask != 0)
    places[:, 0] = True
    return places


def answers(model: Encoder, head: str, batch: Batch, *, padded: bool = True) -> tuple[Tensor, ...]:
    """What a head says about the rows of a batch, each tensor [B, …].

    classify (logits [B, C],), regress (numbers [B],), tokens (logits [B, T, C],), span (start [B, T], end [B, T]),
    beam (start [B, S], end [B, S] and score [B, S] of candidate answers, best first, and impossible [B]).
    `padded=False` says that every row is as long as the batch is wide, so that nothing is paid for masking.
    """
    states = model(batch.ids, batch.mask if padded else None, batch.segments)
    module = model.heads[head]
    if isinstance(module, BeamSpan):
        logits = module(states, allowed(batch))
        return (*module.search(logits), logits.impossible)
    if head == "span":
        return tuple(module(states, allowed(batch)))
    return (module(states),)
