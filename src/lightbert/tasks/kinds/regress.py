"""Regression: one number per text or pair of texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.errors import InputError
from lightbert.tasks import metrics
from lightbert.tasks.example import Example, TextEncoder, text_features
from lightbert.tasks.kinds.kind import Finding, Kind, Outputs, Prediction, Table, example_fields, parse_number

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Regress(Kind[Example]):
    """Numbers in [`low`, `high`]; with `scaled`, targets are mapped to [0, 1] (ELECTRA's STS-B)."""

    low: float
    high: float
    scaled: bool = True

    name: ClassVar[str] = "regress"
    title: ClassVar[str] = "regression"
    heads: ClassVar[tuple[str, ...]] = ("regress",)
    default_metric: ClassVar[str] = "pearson"

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError(f"low must be < high, got low={self.low} and high={self.high}")

    @classmethod
    def for_head(cls, head: str, labels: Callable[[], tuple[str, ...]], like: Kind[Any] | None) -> "Regress":
        """The range of the task to evaluate, else unlimited; imported models predict on the original scale."""
        low, high = (like.low, like.high) if isinstance(like, Regress) else (float("-inf"), float("inf"))
        return cls(low, high, scaled=False)

    @classmethod
    def parse(cls, cell: Any, separator: str) -> float:
        """The number in a cell."""
        number = parse_number(cell)
        if number is None:
            raise ValueError(f"has the label {cell!r}, which must be a number")
        return number

    @classmethod
    def of_labels(cls, labels: Sequence[float], path: str) -> "Regress":
        """The range of the numbers."""
        low, high = min(labels), max(labels)
        if low == high:
            raise InputError(f"regression requires at least two distinct numbers, got only {low:g} in '{path}'")
        return cls(low, high)

    def features(self, examples: Sequence[Example], encoder: TextEncoder) -> Features:
        """Encode examples; the target of a row is its number, scaled if `scaled`."""
        complete = bool(examples) and all(example.label is not None for example in examples)
        targets = None
        if complete:
            numbers = np.array(_numbers(examples))
            targets = ((numbers - self.low) / (self.high - self.low) if self.scaled else numbers).astype(np.float32)
        return text_features(examples, encoder, targets)

    def predictions(self, examples: Sequence[Example], features: Features, outputs: Outputs) -> list[Prediction]:
        """The predicted number, clipped to the range."""
        numbers = np.array([number for (number,) in outputs], np.float64)
        numbers = numbers * (self.high - self.low) + self.low if self.scaled else numbers
        return [{"score": score} for score in numbers.clip(self.low, self.high).tolist()]

    def metrics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Pearson's and Spearman's correlation, and the mean squared error."""
        gold, predicted = _numbers(examples), [float(prediction["score"]) for prediction in predictions]
        return {
            "pearson": metrics.pearson(gold, predicted),
            "spearman": metrics.spearman(gold, predicted),
            "mse": metrics.squared_error(gold, predicted),
        }

    def baseline(self, train: Features, examples: Sequence[Example]) -> list[Prediction]:
        """The mean of the training data."""
        assert train.targets is not None
        return self.predictions(examples, train, [(train.targets.mean(),)] * len(examples))

    def findings(self, examples: Sequence[Example], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
        """Error statistics, errors by range of the true value, and the largest errors."""
        true = np.array([example.label for example in examples], np.float64)
        predicted = np.array([prediction["score"] for prediction in predictions], np.float64)
        order = np.argsort(-np.abs(predicted - true), kind="stable")[:worst].tolist()
        errors = [
            {**example_fields(examples[index]), "label": float(true[index]), "predicted": float(predicted[index])}
            for index in order
        ]
        columns = {"label": "true", "predicted": "predicted", "text": "text"}
        return [
            _statistics(predicted - true),
            _ranges(true, predicted),
            Finding.of_errors(errors, columns, "The largest errors."),
        ]

    def fold_into(self, head: "nn.Module") -> "Regress":
        """Fold the scaling into the last layer, so that the head outputs the numbers on their original scale."""
        if not self.scaled:
            return self
        output = head.get_submodule("output")
        # Of the tensors, not of the parameters: autograd doesn't record it.
        output.get_parameter("weight").data.mul_(self.high - self.low)
        output.get_parameter("bias").data.mul_(self.high - self.low).add_(self.low)
        return replace(self, scaled=False)


def _numbers(examples: Sequence[Example]) -> list[float]:
    try:
        return [float(example.label) for example in examples]  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the labels of a regression must be numbers ({error}); for class names use another kind of task"
        ) from None


Numbers = NDArray[np.float64]

_RANGES = 5


def _statistics(error: Numbers) -> Finding:
    value = {
        "mean": float(error.mean()),
        "mean_absolute": float(np.abs(error).mean()),
        "root_mean_square": float(np.sqrt((error**2).mean())),
        "largest": float(np.abs(error).max()),
    }
    rows = [(name.replace("_", " "), number) for name, number in value.items()]
    return Finding("errors", value, (Table("Errors", ("error", "predicted − true"), rows),))


def _ranges(true: Numbers, predicted: Numbers) -> Finding:
    """The mean prediction in five ranges of the true value, which reveals regression to the mean."""
    edges = np.linspace(true.min(), true.max(), _RANGES + 1)
    bins = np.clip(np.searchsorted(edges, true, side="left") - 1, 0, _RANGES - 1)
    value: list[dict[str, Any]] = [
        {
            "low": float(edges[index]),
            "high": float(edges[index + 1]),
            "count": int((bins == index).sum()),
            "true": float(true[bins == index].mean()),
            "predicted": float(predicted[bins == index].mean()),
        }
        for index in np.unique(bins).tolist()
    ]
    rows = [(f"{row['low']:g}–{row['high']:g}", row["count"], row["true"], row["predicted"]) for row in value]
    columns = ("true value", "count", "mean true", "mean predicted")
    return Finding("ranges", value, (Table("By true value", columns, rows),))
