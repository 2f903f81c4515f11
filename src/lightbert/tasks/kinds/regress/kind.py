"""A number for each text or pair of texts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from lightbert.data.examples.features import Features
from lightbert.errors import InputError
from lightbert.tasks import metrics
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.findings.finding import Finding
from lightbert.tasks.kinds.kind import Kind, Outputs, Prediction
from lightbert.tasks.kinds.regress.findings import find_in_numbers
from lightbert.tasks.texts import TextEncoder, text_features


@dataclass(frozen=True)
class Regress(Kind[Example]):
    """Numbers between `low` and `high`; `scaled`, the model learns where between them (ELECTRA's STS-B)."""

    low: float
    high: float
    scaled: bool = True
    name: ClassVar[str] = "regress"

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError(f"a regression from {self.low} to {self.high} has no room; low must be below high")

    @property
    def head(self) -> str:
        """The head with one output."""
        return "regress"

    def features(self, examples: Sequence[Example], encoder: TextEncoder) -> Features:
        """Encode; the target of a row is its number."""
        complete = bool(examples) and all(example.label is not None for example in examples)
        targets = None
        if complete:
            numbers = np.array(_numbers(examples))
            targets = ((numbers - self.low) / self._unit if self.scaled else numbers).astype(np.float32)
        return text_features(examples, encoder, targets)

    @property
    def _unit(self) -> float:
        return self.high - self.low

    def predictions(self, examples: Sequence[Example], features: Features, outputs: Outputs) -> list[Prediction]:
        """The number, within the range."""
        numbers = np.array([number for (number,) in outputs], np.float64)
        numbers = numbers * self._unit + self.low if self.scaled else numbers
        return [{"score": score} for score in numbers.clip(self.low, self.high).tolist()]

    def metrics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Pearson's and Spearman's correlation, and the mean squared error."""
        gold, predicted = _numbers(examples), [float(prediction["score"]) for prediction in predictions]
        return {
            "pearson": metrics.pearson(gold, predicted),
            "spearman": metrics.spearman(gold, predicted),
            "mse": metrics.squared_error(gold, predicted),
        }

    def findings(self, examples: Sequence[Example], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """Errors along the scale, and the largest."""
        return find_in_numbers(examples, predictions, worst)

    @torch.no_grad()
    def folded(self, head: nn.Module) -> "Regress":
        """Move the range into the weights of the last layer, so that the outputs are the numbers themselves."""
        if not self.scaled:
            return self
        output = head.get_submodule("output")
        output.get_parameter("weight").mul_(self._unit)
        output.get_parameter("bias").mul_(self._unit).add_(self.low)
        return replace(self, scaled=False)


def _numbers(examples: Sequence[Example]) -> list[float]:
    try:
        return [float(example.label) for example in examples]  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"a regression's label is no number ({error}); give numbers, or a kind of task that takes names"
        ) from None
