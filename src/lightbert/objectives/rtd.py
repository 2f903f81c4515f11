"""Replaced-token detection: a small generator fills in masked tokens, the discriminator detects the replaced ones.

ELECTRA §2, ConvBERT §4.1.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import graph

from lightbert.data.batch import Batch
from lightbert.data.masking import fill_positions
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.embeddings import Embeddings
from lightbert.nn.encoder import Encoder
from lightbert.nn.pooling_settings import Pooling
from lightbert.objectives.mlm import MaskedPrediction, Masker, Prediction
from lightbert.objectives.objective import Losses, Objective, Start, ratio, stack
from lightbert.objectives.vectors import HEAD, VectorTransfer

_SHARED = ("word", "position", "segment", "norm")


def share_embeddings(generator: Encoder, discriminator: Encoder) -> None:
    """Share the discriminator's embedding tables and norm with the generator; each keeps its own projection.

    Trigram embeddings add positions and segments after the projection: a generator of another width shares the words.
    """
    if generator.table.shape != discriminator.table.shape:
        shape, other_shape = list(generator.table.shape), list(discriminator.table.shape)
        raise InputError(
            f"generator and discriminator must have word tables of the same shape, got {shape} and {other_shape}"
        )
    widths = {model.embeddings.get_parameter("segment.weight").shape[1] for model in (generator, discriminator)}
    for name in _SHARED if len(widths) == 1 else ("word",):
        setattr(generator.embeddings, name, getattr(discriminator.embeddings, name))


def stop_gradient(discriminator: Encoder) -> None:
    """Let the discriminator's loss train none of its embeddings except their projection, as in DeBERTa-v3.

    Deviation: DeBERTa-v3 adds a second word table, which only the discriminator trains.
    """
    if not isinstance(discriminator.embeddings, Embeddings):
        raise InputError(
            "the embeddings can be trained by the generator alone only if they are plain or factorized, got "
            f"{type(discriminator.embeddings).__name__}; use shared_embeddings=both"
        )
    # Dropout is the last layer before the projection, and the generator has its own.
    discriminator.embeddings.dropout.register_forward_hook(_detach)


def _detach(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output.detach()


class Corruption(nn.Module):
    """Fill in the masked tokens with samples. A module, so that it can be compiled."""

    @torch.no_grad()
    def forward(self, batch: Batch, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Samples [B, P] -> the corrupted ids [B, T], which are replaced [B, T]."""
        assert batch.positions is not None
        assert batch.targets is not None
        assert batch.weights is not None
        filled = fill_positions(batch.ids, batch.positions, batch.weights, drawn)
        original = fill_positions(batch.ids, batch.positions, batch.weights, batch.targets)
        return filled, filled != original


class Detection(nn.Module):
    """The discriminator's loss, and what is summed up of both models. A module, so that it can be compiled."""

    def __init__(self, mlm_weight: float, rtd_weight: float) -> None:
        super().__init__()
        self.mlm_weight, self.rtd_weight = mlm_weight, rtd_weight

    def forward(
        self, model: Encoder, batch: Batch, states: Tensor, replaced: Tensor, masked: Prediction, counts: Tensor
    ) -> Losses:
        """Detect the replaced tokens [B, T] from states [B, T, D] with the model's head."""
        assert batch.weights is not None
        logits = model.heads["rtd"](states).float()  # [B, T]
        real = batch.mask != 0
        losses = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
        loss = losses.masked_fill(~real, 0.0).sum()
        total = self.mlm_weight * masked.loss / counts[0].clamp(min=1) + self.rtd_weight * loss / counts[1].clamp(min=1)
        flagged = (logits > 0) & real
        generated = (masked.loss, batch.weights.sum(), masked.correct)
        detected = (loss, real.sum(), ((flagged == replaced) & real).sum())
        return Losses(total, stack(*generated, *detected, replaced.sum(), flagged.sum(), (flagged & replaced).sum()))


class SideStream:
    """Run a part of a forward pass on a stream of its own; capturing both streams as one CUDA graph is possible.

    PyTorch runs the backward pass of an operation on the stream of its forward pass. So the gradients of what ran on
    the side stream are computed at the same time as those of the rest. The host starts the same kernels in the same
    order, and the terms of each sum of gradients have the same order: the results are the same bits.

    Tensors from outside that the part reads must live until the end of the step. Tensors that leave it must be passed
    to `hand_over`: otherwise their memory could be used again while the main stream still reads it.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        # PyTorch warns about gradients that are accumulated on another stream; older versions don't.
        if hasattr(graph, "set_warn_on_accumulate_grad_stream_mismatch"):
            graph.set_warn_on_accumulate_grad_stream_mismatch(False)

    @contextmanager
    def running(self, shared: Iterable[Tensor]) -> Iterator[None]:
        """Run the body on the side stream, after all work of the current stream, which then waits for it.

        shared: the parameters that the rest uses, too. Their gradients are added on the current stream: the side stream
        would have to wait for those of the rest before it could continue.
        """
        main = torch.cuda.current_stream(self._stream.device)
        # The node that adds gradients belongs to the stream on which it is created, and lives while it is used.
        nodes = [graph.get_gradient_edge(parameter).node for parameter in shared if parameter.requires_grad]
        self._stream.wait_stream(main)
        with torch.cuda.stream(self._stream):
            yield
        main.wait_stream(self._stream)
        del nodes

    def hand_over(self, *tensors: Tensor) -> None:
        """Keep the memory of tensors of the side stream until the current stream has read them."""
        for tensor in tensors:
            tensor.record_stream(torch.cuda.current_stream(self._stream.device))


class ReplacedTokenDetection(Objective):
    """Train the generator by MLM and the discriminator by binary classification of every token (ELECTRA §2).

    No gradient flows from the discriminator to the generator's predictions. With a ``generator_stream``, their backward
    passes run at the same time; the gradients of the shared embeddings are added in the same order.

    shared_embeddings: whose loss trains them; "generator" applies `stop_gradient`.
    vectors: the discriminator also learns a teacher's vectors, from the corrupted texts.
    """

    title: ClassVar[str] = "replaced-token detection"
    tallies: tuple[str, ...] = (
        *("mlm_loss", "predictions", "mlm_correct"),
        *("rtd_loss", "tokens", "rtd_correct"),
        *("replaced", "flagged", "detected"),
    )

    def __init__(
        self,
        generator: Model,
        discriminator: Model,
        masker: Masker,
        *,
        mlm_weight: float = 1.0,
        rtd_weight: float = 50.0,
        temperature: float = 1.0,
        shared_embeddings: Literal["both", "generator"] = "both",
        vectors: VectorTransfer | None = None,
    ) -> None:
        super().__init__()
        share_embeddings(generator, discriminator)
        if shared_embeddings == "generator":
            stop_gradient(discriminator)
        self.generator, self.discriminator, self.masker = generator, discriminator, masker
        self.predict, self.corrupt = MaskedPrediction(masker.seed, temperature), Corruption()
        self.detect = Detection(mlm_weight, rtd_weight)
        self.vectors = vectors
        if vectors is not None:
            self.tallies = (*self.tallies, "vector_loss", "similarity_loss", "texts")
        self.generator_stream: SideStream | None = None

    @classmethod
    def start(cls, run: Start) -> Self:
        """Build the objective of a run, with a head for the teacher's vectors if there is one."""
        recipe, vectors = run.recipe, run.vectors
        model = run.model({"rtd": {}} if vectors is None else {"rtd": {}, HEAD: {"size": vectors.width}})
        if vectors is not None:
            model.pooling = Pooling(normalize=True, projection=True)
        return cls(
            run.generator(model),
            model,
            run.masker,
            rtd_weight=recipe.rtd_weight,
            temperature=recipe.temperature,
            shared_embeddings=recipe.shared_embeddings,
            vectors=vectors,
        )

    def prepare(self, batch: Batch) -> Batch:
        """Mask the batch for the generator, after the teacher has read it."""
        batch = batch if self.vectors is None else self.vectors.targets(batch)
        masked: Batch = self.masker(batch)
        return masked

    def counts(self, batch: Batch) -> Tensor:
        """Count the generator's predictions, the discriminator's tokens, and the texts."""
        assert batch.weights is not None
        return stack(batch.weights.sum(), (batch.mask != 0).sum(), torch.ones_like(batch.rows).sum()).float()

    def forward(self, batch: Batch, counts: Tensor) -> Losses:
        """Compute the weighted sum of the generator's mean loss per prediction and the discriminator's per token."""
        side = self.generator_stream if self.training else None
        with nullcontext() if side is None else side.running(self.discriminator.embeddings.parameters()):
            masked = self.predict(self.generator, batch, self.generator(batch.ids, batch.mask, batch.segments))
            ids, replaced = self.corrupt(batch, masked.drawn)
        if side is not None:
            side.hand_over(masked.loss, masked.correct, ids, replaced)
        states = self.discriminator(ids, batch.mask, batch.segments)
        losses: Losses = self.detect(self.discriminator, batch, states, replaced, masked, counts)
        if self.vectors is None:
            return losses
        apart = self.vectors(self.discriminator, batch, states)
        tally = torch.cat([losses.tally, stack(*apart, torch.ones_like(batch.rows).sum())])
        return Losses(losses.total + self.vectors.total(apart, counts[2]), tally)

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """Return losses, the generator's accuracy, and the discriminator's accuracy, precision and recall."""
        mlm, rtd = ratio(tally, "mlm_loss", "predictions"), ratio(tally, "rtd_loss", "tokens")
        total = self.detect.mlm_weight * mlm + self.detect.rtd_weight * rtd
        apart = {}
        if self.vectors is not None:
            apart = {name: ratio(tally, name, "texts") for name in ("vector_loss", "similarity_loss")}
            total += self.vectors.weight * (apart["vector_loss"] + self.vectors.similarity * apart["similarity_loss"])
        return {
            "loss": total,
            "mlm_loss": mlm,
            "mlm_accuracy": ratio(tally, "mlm_correct", "predictions"),
            "rtd_loss": rtd,
            "rtd_accuracy": ratio(tally, "rtd_correct", "tokens"),
            "rtd_precision": ratio(tally, "detected", "flagged"),
            "rtd_recall": ratio(tally, "detected", "replaced"),
            "replaced": ratio(tally, "replaced", "tokens"),
            **apart,
        }

    def models(self) -> dict[str, Model]:
        """Return the discriminator as "final", and the generator."""
        return {"final": self.discriminator, "generator": self.generator}
