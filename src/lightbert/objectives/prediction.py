"""Masked-token and next-sentence prediction, shared by the pre-training objectives."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.data.batches.batch import Batch
from lightbert.nn.encoder import Encoder
from lightbert.ops.cross_entropy import cross_entropy

_ALIGNMENT = 64


class Prediction(NamedTuple):
    """A model's predictions at the masked positions of a batch."""

    logits: Tensor  # [B, P, V], without gradient; on a GPU V is rounded up, and the added entries are -inf
    loss: Tensor  # [], summed over the masked tokens, without filler
    correct: Tensor  # [], number of correct predictions
    log_sums: Tensor | None = None  # [B, P], the log-sum-exp of the logits if a kernel computed it


class MaskedPrediction(nn.Module):
    """Logits and loss at the masked positions only, the expensive part. A module, so that it can be compiled."""

    def forward(self, model: Encoder, batch: Batch, states: Tensor) -> Prediction:
        """Predict from states [B, T, D] with the model's masked-language head."""
        assert batch.positions is not None
        assert batch.targets is not None
        assert batch.weights is not None
        index = batch.positions.unsqueeze(-1).expand(-1, -1, states.shape[-1])
        multiple = _ALIGNMENT if states.is_cuda else 1
        logits = model.heads["mlm"](states.gather(1, index), model.table, multiple)  # [B, P, V]
        each, likely, log_sums = cross_entropy(logits, batch.targets)  # [B, P]
        hits = (likely == batch.targets) & (batch.weights != 0)
        # Detached: autograd would otherwise add zeros of the logits' size to their gradient.
        loss = torch.dot(each.flatten(), batch.weights.flatten())
        return Prediction(logits.detach(), loss, hits.sum(), log_sums)


class PairPrediction(NamedTuple):
    """A model's next-sentence predictions; all 0 without pairs or without an "nsp" head."""

    loss: Tensor  # [], summed over the pairs
    pairs: Tensor  # []
    correct: Tensor  # []


def predict_pairs(model: Encoder, batch: Batch, states: Tensor) -> PairPrediction:
    """Predict from states [B, T, D] whether the second text of each row follows the first."""
    zero = torch.zeros((), device=states.device)
    if "nsp" not in model.heads or batch.nsp is None:
        return PairPrediction(zero, zero, zero)
    logits = model.heads["nsp"](states).float()  # [B, 2]
    loss = F.cross_entropy(logits, batch.nsp, reduction="sum")
    return PairPrediction(loss, zero + logits.shape[0], (logits.argmax(-1) == batch.nsp).sum())
