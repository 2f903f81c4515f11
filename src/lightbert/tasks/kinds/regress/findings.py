"""Error analysis of regression: error statistics, errors by range of the true value, largest errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbert.tasks.example import Example
from lightbert.tasks.kinds.findings.finding import Finding, Table, example_fields, example_line
from lightbert.tasks.kinds.kind import Prediction

Numbers = NDArray[np.float64]

_RANGES = 5


def regression_findings(examples: Sequence[Example], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
    """Analyse predicted numbers."""
    gold = np.array([example.label for example in examples], np.float64)
    predicted = np.array([prediction["score"] for prediction in predictions], np.float64)
    return [_errors(gold, predicted), _ranges(gold, predicted), _most_wrong(examples, gold, predicted, worst)]


def _errors(gold: Numbers, predicted: Numbers) -> Finding:
    error = predicted - gold
    value = {
        "mean": float(error.mean()),
        "mean_absolute": float(np.abs(error).mean()),
        "root_mean_square": float(np.sqrt((error**2).mean())),
        "largest": float(np.abs(error).max()),
    }
    rows = [(name.replace("_", " "), number) for name, number in value.items()]
    return Finding("errors", value, (Table("Errors", ("error", "predicted − true"), rows),))


def _ranges(gold: Numbers, predicted: Numbers) -> Finding:
    """The mean prediction in five ranges of the true value, which reveals regression to the mean."""
    edges = np.linspace(gold.min(), gold.max(), _RANGES + 1)
    bins = np.clip(np.searchsorted(edges, gold, side="left") - 1, 0, _RANGES - 1)
    value: list[dict[str, Any]] = [
        {
            "low": float(edges[index]),
            "high": float(edges[index + 1]),
            "count": int((bins == index).sum()),
            "true": float(gold[bins == index].mean()),
            "predicted": float(predicted[bins == index].mean()),
        }
        for index in np.unique(bins).tolist()
    ]
    rows = [(f"{each['low']:g}–{each['high']:g}", each["count"], each["true"], each["predicted"]) for each in value]
    columns = ("true value", "count", "mean true", "mean predicted")
    return Finding("ranges", value, (Table("By true value", columns, rows),))


def _most_wrong(examples: Sequence[Example], gold: Numbers, predicted: Numbers, worst: int) -> Finding:
    order = np.argsort(-np.abs(predicted - gold), kind="stable")[:worst].tolist()
    value = [
        {**example_fields(examples[index]), "label": float(gold[index]), "predicted": float(predicted[index])}
        for index in order
    ]
    rows = [
        (each["label"], each["predicted"], example_line(examples[index]))
        for each, index in zip(value, order, strict=True)
    ]
    return Finding(
        "most_wrong", value, (Table("Most wrong", ("true", "predicted", "text"), rows, "The largest errors."),)
    )
