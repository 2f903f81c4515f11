"""Fine-tuning: what a model's head says about texts, tokens or answers, judged by a task's targets."""

from collections.abc import Mapping

from torch import Tensor

from lightbert.data.batches.batch import Batch
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.heads.span import answer_positions
from lightbert.objectives.judgement import Judged, judge_answers, judge_joint, judge_labels, judge_numbers, judge_sets
from lightbert.objectives.objective import Losses, Objective, ratio, stack


class TaskObjective(Objective):
    """One head's loss per example: a text, or where each token has a target of its own, a judged token.

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
        """The judged tokens, or the rows."""
        assert batch.targets is not None
        judged = (batch.targets >= 0).sum() if self.head == "tokens" else batch.rows.new_full((), len(batch.rows))
        return stack(judged).float()

    def forward(self, batch: Batch, counts: Tensor) -> Losses:
        """The mean loss per example."""
        states = self.model(batch.ids, batch.mask, batch.segments)
        judged = self._judge(states, batch)
        tally = stack(judged.loss, self.counts(batch)[0], judged.correct)
        return Losses(judged.loss / counts[0].clamp(min=1), tally)

    def _judge(self, states: Tensor, batch: Batch) -> Judged:
        head, targets = self.model.heads[self.head], batch.targets
        assert targets is not None
        match self.head:
            case "span" | "beam":
                allowed = answer_positions(batch.ids, batch.mask, batch.segments)
                if self.head == "span":
                    return judge_answers(head(states, allowed), targets)
                return judge_joint(head(states, allowed, targets[:, 0]), targets)
            case "regress":
                return judge_numbers(head(states), targets)
        judge = judge_sets if targets.is_floating_point() else judge_labels
        return judge(head(states), targets)

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """The loss, and how many examples are right to the last label; a number has no such thing."""
        result = {"loss": ratio(tally, "loss", "examples")}
        return result if self.head == "regress" else result | {"accuracy": ratio(tally, "correct", "examples")}

    def models(self) -> dict[str, Model]:
        """The one model."""
        return {"final": self.model}


_HEADS = ("classify", "regress", "tokens", "span", "beam")
