"""Contrastive tuning of an encoder on a few labelled texts: those with the same label get vectors near each other.

The loss is that of Khosla et al. (2020) over all pairs of a batch; SetFit (Tunstall et al., 2022) draws pairs instead.
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lightbert.data.batch import pad_rows
from lightbert.data.features import Features, Specials
from lightbert.models import Model
from lightbert.models.folder import with_changes
from lightbert.nn.inference import TextVector
from lightbert.nn.pooling_settings import Pooling

MAX_TEXTS_PER_LABEL, MAX_TEXTS = 16, 128
"""Tuning is tried with at most this many texts per label on average, and in all."""
STEPS, BATCH = 30, 32
_RATE, _TEMPERATURE = 1e-4, 0.1


def tune(model: Model, features: Features, targets: NDArray[np.int64], rows: NDArray[np.int64], seed: int) -> Model:
    """A copy of a model, tuned on some rows of the features."""
    tuned = with_changes(model, {}).to(model.device).train()
    tuned.tokenizer = model.tokenizer
    pooling = model.pooling or Pooling()
    vector = TextVector(tuned, pooling.pool, projection=pooling.projection)
    parameters = [*tuned.blocks.parameters(), *(tuned.heads["vector"].parameters() if pooling.projection else ())]
    optimizer = torch.optim.AdamW(parameters, lr=_RATE, weight_decay=0.01)
    random, pad = np.random.default_rng(seed), Specials.of(model.require_tokenizer()).pad
    warmup = STEPS // 10
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        # Of dropout.
        torch.manual_seed(seed)
        for step in range(STEPS):
            optimizer.param_groups[0]["lr"] = _RATE * min(1.0, (step + 1) / warmup) * (1 - step / STEPS)
            chosen = random.permutation(rows)[:BATCH]
            batch = pad_rows(features, chosen, int(features.lengths[chosen].max()), pad).to(model.device)
            vectors = vector(batch.ids, batch.mask, batch.segments).vectors
            optimizer.zero_grad()
            contrastive_loss(vectors, torch.from_numpy(targets[chosen]).to(model.device)).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
    return tuned.eval()


def contrastive_loss(vectors: Tensor, labels: Tensor) -> Tensor:
    """The mean log loss of the texts with the same label among all other texts of the batch, by cosine."""
    vectors = F.normalize(vectors, dim=1)
    others = ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    logits = (vectors @ vectors.T / _TEMPERATURE).masked_fill(~others, float("-inf"))
    same = (labels[:, None] == labels) & others
    losses = (logits.logsumexp(1, keepdim=True) - logits).masked_fill(~same, 0.0).sum(1) / same.sum(1).clamp(min=1)
    return losses.sum() / same.any(1).sum().clamp(min=1)
