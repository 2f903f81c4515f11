"""Pre-training distillation: predict the masked tokens and the teacher's distribution over them."""

from typing import NamedTuple

from torch import Tensor, nn

from lightbert.data.batch import Batch
from lightbert.nn.encoder import Encoder
from lightbert.objectives.distill.losses import SoftPrediction, soft_prediction


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
