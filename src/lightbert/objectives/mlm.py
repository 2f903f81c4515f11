"""Masked-language modelling, with next-sentence prediction if the examples are pairs."""

from collections.abc import Mapping

from torch import Tensor

from lightbert.data.batch import Batch
from lightbert.models import Model
from lightbert.objectives.masker import Masker
from lightbert.objectives.objective import Losses, Objective, ratio, stack
from lightbert.objectives.prediction import MaskedPrediction, predict_pairs


class MaskedLanguageModelling(Objective):
    """Predict the masked tokens; a model with an "nsp" head also predicts whether the second text follows the first."""

    tallies = ("mlm_loss", "predictions", "mlm_correct", "nsp_loss", "pairs", "nsp_correct")

    def __init__(self, model: Model, masker: Masker) -> None:
        super().__init__()
        self.model, self.masker, self.predict = model, masker, MaskedPrediction()

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

    def models(self) -> dict[str, Model]:
        """Return the trained model."""
        return {"final": self.model}
