"""Masked-language modelling: masking, the prediction of masked tokens and of next sentences, and the objective."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.data.batch import Batch
from lightbert.data.features import Specials
from lightbert.data.masking import mask_batch
from lightbert.data.masking_settings import Masking
from lightbert.models import Model
from lightbert.nn.encoder import Encoder
from lightbert.nn.heads import MaskedLanguage
from lightbert.objectives.objective import Losses, Objective, Start, ratio, stack
from lightbert.ops.linear_cross_entropy import linear_cross_entropy
from lightbert.ops.randomness import Stream, uniform


class Masker(nn.Module):
    """Mask tokens of a batch, as a pure function of (seed, step, row), on the batch's device.

    continues: [V], True for word pieces that continue a word; enables whole-word masking.
    """

    def __init__(
        self, masking: Masking, specials: Specials, *, vocab: int, seed: int, continues: Tensor | None = None
    ) -> None:
        super().__init__()
        self.masking, self.specials, self.vocab, self.seed = masking, specials, vocab, seed
        self.continues: Tensor | None
        self.register_buffer("continues", continues, persistent=False)

    def forward(self, batch: Batch) -> Batch:
        """Return the batch with masked ids, positions, targets and weights."""
        return mask_batch(
            batch, self.masking, self.specials, vocab=self.vocab, seed=self.seed, continues=self.continues
        )


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
        losses, correct, drawn = linear_cross_entropy(features, *decoder, batch.targets, chances, self.temperature)
        loss = torch.dot(losses.flatten(), batch.weights.flatten())
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


class MaskedLanguageModelling(Objective):
    """Predict the masked tokens; a model with an "nsp" head also predicts whether the second text follows the first."""

    tallies = ("mlm_loss", "predictions", "mlm_correct", "nsp_loss", "pairs", "nsp_correct")
    title: ClassVar[str] = "masked-language modelling"

    def __init__(self, model: Model, masker: Masker) -> None:
        super().__init__()
        self.model, self.masker, self.predict = model, masker, MaskedPrediction()

    @classmethod
    def start(cls, run: Start) -> Self:
        """Build the objective of a run; examples that are pairs add next-sentence prediction."""
        heads: dict[str, dict[str, Any]] = {"mlm": {}}
        return cls(run.model(heads | {"nsp": {}} if run.recipe.examples == "pairs" else heads), run.masker)

    def prepare(self, batch: Batch) -> Batch:
        """Mask the batch."""
        masked: Batch = self.masker(batch)
        return masked

    def counts(self, batch: Batch) -> Tensor:
        """Count the predictions and the pairs."""
        assert batch.weights is not None
        return stack(batch.weights.sum(), batch.rows.new_full((), batch.rows.shape[0])).float()

    def forward(self, batch: Batch, counts: Tensor) -> Losses:
        """Compute the mean MLM loss per prediction plus the mean NSP loss per pair."""
        assert batch.weights is not None
        states = self.model(batch.ids, batch.mask, batch.segments)
        masked = self.predict(self.model, batch, states)
        paired = predict_pairs(self.model, batch, states)
        total = masked.loss / counts[0].clamp(min=1) + paired.loss / counts[1].clamp(min=1)
        return Losses(total, stack(masked.loss, batch.weights.sum(), masked.correct, *paired))

    def summary(self, tally: Mapping[str, float]) -> dict[str, float]:
        """Return losses and accuracies."""
        result = {
            "loss": ratio(tally, "mlm_loss", "predictions") + ratio(tally, "nsp_loss", "pairs"),
            "mlm_loss": ratio(tally, "mlm_loss", "predictions"),
            "mlm_accuracy": ratio(tally, "mlm_correct", "predictions"),
        }
        if tally["pairs"]:
            result["nsp_loss"] = ratio(tally, "nsp_loss", "pairs")
            result["nsp_accuracy"] = ratio(tally, "nsp_correct", "pairs")
        return result
