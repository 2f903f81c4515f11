"""A teacher's vector of each text as a target for the mean of a model's states, beside the losses of its tokens.

Pre-training by tokens alone trains no representation of a text. The teacher is a sentence encoder with the same
vocabulary, so that it reads the same ids.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.data.batch import Batch
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.encoder import Encoder
from lightbert.nn.inference import TextVector
from lightbert.nn.pooling_settings import Pooling

HEAD = "vector"


class VectorLosses(NamedTuple):
    """Two sums over the texts of a batch."""

    cosine: Tensor
    """[] 1 − the cosine between a text's vector and the teacher's"""
    similarity: Tensor
    """[] mean squared difference between its cosines with the other texts and the teacher's"""


def vector_losses(vectors: Tensor, targets: Tensor) -> VectorLosses:
    """Compare vectors with those of a teacher, each [N, E]."""
    vectors, targets = F.normalize(vectors.float(), dim=-1), F.normalize(targets.float(), dim=-1)
    difference = vectors @ vectors.T - targets @ targets.T  # [N, N]
    return VectorLosses((1 - (vectors * targets).sum(-1)).sum(), difference.square().mean(-1).sum())


class VectorTransfer(nn.Module):
    """Compare a model's vectors, from its head "vector", with those of a teacher, which this module doesn't own.

    weight: of the sum of both losses. similarity: the weight of the second one in this sum.

    The similarities are those of the texts that a process computes at once: they depend on how a batch is split.
    """

    def __init__(self, teacher: Model, *, weight: float = 20.0, similarity: float = 2.0) -> None:
        super().__init__()
        self.weight, self.similarity = weight, similarity
        pooling = teacher.pooling or Pooling()
        # In a tuple, so that its weights are neither trained nor saved.
        frozen = teacher.eval().requires_grad_(False)
        self.teachers = (TextVector(frozen, pooling.pool, projection=pooling.projection),)

    @property
    def teacher(self) -> Encoder:
        """The teacher."""
        return self.teachers[0].encoder

    @property
    def width(self) -> int:
        """The number of values in the teacher's vectors."""
        return self.teacher.width

    @torch.no_grad()
    def targets(self, batch: Batch) -> Batch:
        """Add the teacher's vectors [B, E] to a batch that isn't masked yet."""
        [teacher] = self.teachers
        if batch.mask.dtype != torch.bool:
            raise InputError("vectors.teacher requires one example per row; use examples=segments instead of packed")
        if teacher.device != batch.ids.device:
            teacher.to(batch.ids.device)
        device = batch.ids.device.type
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            vectors = teacher(batch.ids, batch.mask, torch.zeros_like(batch.ids)).vectors
        return replace(batch, vectors=vectors)

    def forward(self, model: Encoder, batch: Batch, states: Tensor) -> VectorLosses:
        """Compare the vectors of states [B, T, D] with those of the batch."""
        assert batch.vectors is not None
        return vector_losses(model.heads[HEAD](states, mask=batch.mask), batch.vectors)

    def total(self, losses: VectorLosses, count: Tensor) -> Tensor:
        """Return the weighted sum of the mean losses of `count` texts."""
        return self.weight * (losses.cosine + self.similarity * losses.similarity) / count.clamp(min=1)
