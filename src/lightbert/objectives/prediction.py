"""Masked-token and next-sentence prediction, shared by the pre-training objectives."""

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.data.batch import Batch
from lightbert.nn.encoder import Encoder
from lightbert.nn.heads import MaskedLanguage
from lightbert.ops.linear_cross_entropy import linear_cross_entropy
from lightbert.ops.randomness import Stream, uniform


class Prediction(NamedTuple):
    """A model's predictions at the masked positions of a batch."""

    loss: Tensor  # [], summed over the masked tokens, without filler
    correct: Tensor  # [], number of correct predictions
    drawn: Tensor | None  # [B, P], samples of what is predicted, if there is a seed for them


class MaskedPrediction(nn.Module):
    """Loss and samples at the masked positions only, the expensive part. A module, so that it can be compiled.

    seed: draw samples, as a pure function of (seed, step, row). A ``temperature`` above 1 draws less likely tokens,
    which are easier to detect (an option of ELECTRA's code).
    """

    def __init__(self, seed: int | None = None, temperature: float = 1.0) -> None:
        super().__init__()
        self.seed, self.temperature = seed, temperature

    def forward(self, model: Encoder, batch: Batch, states: Tensor) -> Prediction:
        """Predict from states [B, T, D] with the model's masked-language head."""
        assert batch.positions is not None
        assert batch.targets is not None
        assert batch.weights is not None
        index = batch.positions.unsqueeze(-1).expand(-1, -1, states.shape[-1])
        head = cast("MaskedLanguage", model.heads["mlm"])
        features, decoder = head.features(states.gather(1, index)), head.decoder(model.table)
        chances = None
        if self.seed is not None:
            chances = uniform(self.seed, Stream.SAMPLE, batch.step, batch.rows.unsqueeze(1), batch.positions)
        each, correct, drawn = linear_cross_entropy(features, *decoder, batch.targets, chances, self.temperature)
        loss = torch.dot(each.flatten(), batch.weights.flatten())
        return Prediction(loss, (correct & (batch.weights != 0)).sum(), drawn)


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
