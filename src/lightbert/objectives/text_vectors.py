"""Objectives for the vectors of texts: pairs with in-batch negatives (InfoNCE), and pairs with a score (CoSENT, …).

A row of a batch has the `texts` texts of an example one after another; its targets are a number and their lengths.
"""

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lightbert.data.batch import Batch
from lightbert.models import Model
from lightbert.nn.inference import TextVector
from lightbert.nn.pooling import PackedTexts
from lightbert.nn.pooling_settings import Pooling
from lightbert.objectives.objective import Losses, Objective, ratio, stack

Graded = Literal["cosent", "cosine", "angle"]


class VectorObjective(Objective):
    """Base class: computes the vectors of a batch with the model's pooling.

    texts: the number of texts of a row. pad: the id of the padding.
    chunk: the number of texts whose activations are kept at a time; the others are computed again in the backward pass,
    with the same dropout, so that the gradients are those of the whole batch (Gao et al. 2021). 0 = keep all.
    temperature: divides cosines. Each loss is the mean over the whole vectors and those of the pooling's `sizes`.
    """

    tallies: tuple[str, ...] = ("loss", "weight")

    def __init__(self, model: Model, texts: int, *, pad: int = 0, chunk: int = 0, temperature: float = 0.05) -> None:
        super().__init__()
        self.model, self.texts, self.pad, self.chunk, self.temperature = model, texts, pad, chunk, temperature
        pooling = model.pooling or Pooling()
        # In a tuple, so that parameters keep their names.
        self._vector = (TextVector(model, pooling.pool, projection=pooling.projection),)
        self.sizes = (self._vector[0].width, *pooling.sizes)

    def rows(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Give each text a row of its own: ids and mask [k·B, T], the first texts of all examples first."""
        assert batch.targets is not None
        lengths = batch.targets[:, 1:].long()  # [B, k]
        offsets = torch.arange(len(lengths), device=lengths.device)[:, None] * batch.ids.shape[1]
        starts = lengths.cumsum(1) - lengths + offsets
        places = PackedTexts(starts.T.flatten(), lengths.T.flatten())
        # The longest text is known on a CPU only; on a GPU, shapes are static.
        width = batch.ids.shape[1] if batch.ids.is_cuda else int(lengths.max())
        real = places.real(width)
        return places.unpack(batch.ids)[:, :width].masked_fill(~real, self.pad), real

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the vectors of rows, [N, T] to [N, E] in float32."""
        size = self.chunk or len(ids)
        parts = [(ids[at : at + size], mask[at : at + size]) for at in range(0, len(ids), size)]
        if len(parts) == 1:
            return self._encode(ids, mask)
        return torch.cat([checkpoint(self._encode, *part, use_reentrant=False) for part in parts])

    def _encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        if not ids.is_cuda:
            width = int(mask.sum(1).max())
            ids, mask = ids[:, :width], mask[:, :width]
        vectors: Tensor = self._vector[0](ids, mask).vectors
        return vectors

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """Return the loss."""
        return {"loss": ratio(tally, "loss", "weight")}


class PairObjective(VectorObjective):
    """InfoNCE: the cross-entropy of the second text of an example among all second and third texts of the batch.

    The third text, if there is one, is a hard negative. Texts that are equal to the second one, or that belong to an
    example with the same first text, are not negatives. The number of an example is its weight. With accumulation or
    several processes, the negatives are those of a part of the batch.
    """

    tallies = ("loss", "weight", "correct", "examples")

    def counts(self, batch: Batch) -> Tensor:
        """Return the sum of the weights."""
        assert batch.targets is not None
        return stack(batch.targets[:, 0].sum()).float()

    def forward(self, batch: Batch, counts: Tensor) -> Losses:
        """Compute the weighted mean loss."""
        assert batch.targets is not None
        ids, mask = self.rows(batch)
        weights, n = batch.targets[:, 0], len(batch.targets)
        vectors, equal = self.vectors(ids, mask), _equal_texts(ids, mask)
        own = torch.eye(n, dtype=torch.bool, device=ids.device)
        hidden = equal[n : 2 * n, n:] | equal[:n, n:]  # [B, (k - 1)·B]
        hidden[:, :n] |= equal[:n, :n]
        hidden[:, :n] &= ~own
        loss, correct = vectors.new_zeros(()), vectors.new_zeros(())
        for size in self.sizes:
            short = F.normalize(vectors[:, :size], dim=-1)
            logits = (short[:n] @ short[n:].T / self.temperature).masked_fill(hidden, float("-inf"))
            target = torch.arange(n, device=ids.device)
            loss = loss + (F.cross_entropy(logits, target, reduction="none") * weights).sum() / len(self.sizes)
            # Of the last, smallest size.
            correct = (logits.argmax(-1) == target).sum()
        tally = stack(loss, weights.sum(), correct, torch.tensor(n, device=ids.device))
        return Losses(loss / counts[0].clamp(min=1e-6), tally)

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """Return the loss, and the share of examples whose own text is the nearest, with the smallest vectors."""
        return {**super().summary(tally), "accuracy": ratio(tally, "correct", "examples")}


class GradedObjective(VectorObjective):
    """The cosines of pairs in the order of their scores, which are in [0, 1].

    cosent: log(1 + Σ exp((cos i − cos j) / temperature)) over all pairs i with a lower score than j (Su 2022).
    cosine: the squared difference between cosine and score.
    angle: cosent on cosines, and on the similarity in complex space, whose gradient doesn't vanish (Li and Li 2023).
    """

    def __init__(self, model: Model, kind: Graded = "cosent", **settings: float) -> None:
        super().__init__(model, 2, **settings)  # type: ignore[arg-type]
        self.kind = kind

    def counts(self, batch: Batch) -> Tensor:
        """Return the number of pairs."""
        return stack(batch.rows.new_full((), len(batch.rows))).float()

    def forward(self, batch: Batch, counts: Tensor) -> Losses:
        """Compute the mean loss."""
        assert batch.targets is not None
        scores, n = batch.targets[:, 0], len(batch.targets)
        vectors = self.vectors(*self.rows(batch))
        loss = vectors.new_zeros(())
        for size in self.sizes:
            short = F.normalize(vectors[:, :size], dim=-1)
            loss = loss + self._loss(short[:n], short[n:], scores) * n / len(self.sizes)
        return Losses(loss / counts[0].clamp(min=1), stack(loss, self.counts(batch)[0]))

    def _loss(self, first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
        cosines = (first * second).sum(-1)
        if self.kind == "cosine":
            return F.mse_loss(cosines, scores)
        loss = self._cosent(cosines, scores)
        return loss if self.kind == "cosent" else loss + self._cosent(_complex_similarity(first, second), scores)

    def _cosent(self, similarities: Tensor, scores: Tensor) -> Tensor:
        differences = (similarities[:, None] - similarities[None]) / self.temperature
        wrong = differences.masked_fill(scores[:, None] >= scores[None], float("-inf")).flatten()
        return F.pad(wrong, (1, 0)).logsumexp(0)


def _complex_similarity(first: Tensor, second: Tensor) -> Tensor:
    """|Re ⟨x, y⟩ + Im ⟨x, y⟩| of unit vectors whose halves are real and imaginary parts; [N, E] to [N]."""
    (a, b), (c, d) = first.chunk(2, -1), second.chunk(2, -1)
    if b.shape != a.shape:
        a, c = a[:, : b.shape[1]], c[:, : d.shape[1]]
    similarity: Tensor = (a * c + b * d + b * c - a * d).sum(-1).abs()
    return similarity


def _equal_texts(ids: Tensor, mask: Tensor) -> Tensor:
    """Whether two rows are the same text: [N, T] to [N, N], by hashes."""
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (ids.shape[1],), generator=generator).to(ids.device)
    hashes = ((ids + 1) * factors * mask).sum(-1)
    return hashes[:, None] == hashes[None]
