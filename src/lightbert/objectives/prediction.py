"""Predicting masked tokens: shared by masked-language modelling and the generator of replaced-token detection."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.data.batch import Batch
from lightbert.nn.encoder import Encoder


class Prediction(NamedTuple):
    """What a model says about the masked positions of a batch."""

    logits: Tensor  # [B, P, V]
    loss: Tensor  # [], summed over the real predictions
    correct: Tensor  # [], how many are right


def predict_masked(model: Encoder, batch: Batch, states: Tensor) -> Prediction:
    """Predict at the masked positions only: the logits are the dear part."""
    assert batch.positions is not None
    assert batch.targets is not None
    assert batch.weights is not None
    index = batch.positions.unsqueeze(-1).expand(-1, -1, states.shape[-1])
    logits = model.heads["mlm"](states.gather(1, index), model.table)  # [B, P, V]
    each = F.cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten(), reduction="none")
    hits = (logits.argmax(-1) == batch.targets) & (batch.weights != 0)
    return Prediction(logits, torch.dot(each, batch.weights.flatten()), hits.sum())
