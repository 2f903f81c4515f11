"""Pre-training distillation: predicting what stood at the masked positions, and what the teacher says about them."""

from typing import NamedTuple

from torch import Tensor, nn

from lightbert.data.batches.batch import Batch
from lightbert.nn.encoder import Encoder
from lightbert.objectives.distill.losses import SoftPrediction, soft_prediction


class Distilled(NamedTuple):
    """Sums over the real predictions of a batch."""

    loss: SoftPrediction
    correct: Tensor  # [], how many are right


class DistilledPrediction(nn.Module):
    """Logits and losses at the masked positions only. A module so that it can be compiled."""

    def forward(
        self, student: Encoder, states: Tensor, teacher: Encoder | None, taught: Tensor | None, batch: Batch
    ) -> Distilled:
        """The student's last states [B, T, D] and the teacher's, if there is one: they may differ in width."""
        assert batch.positions is not None
        assert batch.targets is not None
        assert batch.weights is not None
        logits = _logits(student, states, batch.positions)  # [B, P, V]
        said = None if teacher is None or taught is None else _logits(teacher, taught, batch.positions)
        hits = (logits.argmax(-1) == batch.targets) & (batch.weights != 0)
        return Distilled(soft_prediction(said, logits, batch.targets, batch.weights), hits.sum())


def _logits(model: Encoder, states: Tensor, positions: Tensor) -> Tensor:
    index = positions.unsqueeze(-1).expand(-1, -1, states.shape[-1])
    logits: Tensor = model.heads["mlm"](states.gather(1, index), model.table)
    return logits
