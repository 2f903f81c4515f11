"""What there is to see in predicted numbers: where along the scale they are off, and the largest errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbert.tasks.example import Example
from lightbert.tasks.kinds.findings.finding import Finding, Table, example_fields, example_line
from lightbert.tasks.kinds.kind import Prediction

Numbers = NDArray[np.float64]

_RANGES = 5


def find_in_numbers(examples: Sequence[Example], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
    """The findings of a regression."""
    gold = np.array([example.label for example in examples], np.float64)
    said = np.array([prediction["score"] for prediction in predictions], np.float64)
    return [_errors(gold, said), _ranges(gold, said), _most_wrong(examples, gold, said, worst)]


def _errors(gold: Numbers, said: Numbers) -> Finding:
    error = said - gold
    value = {
        "mean": float(error.mean()),
        "mean_absolute": float(np.abs(error).mean()),
        "root_mean_square": float(np.sqrt((error**2).mean())),
        "largest": float(np.abs(error).max()),
    }
    rows = [(name.replace("_", " "), number) for name, number in value.items()]
    return Finding("errors", value, (Table("Errors", ("error", "predicted − true"), rows),))


def _ranges(gold: Numbers, said: Numbers) -> Finding:
    """The mean prediction for each fifth of the scale: a model that keeps to the middle shows itself here."""
    edges = np.linspace(gold.min(), gold.max(), _RANGES + 1)
    places = np.clip(np.searchsorted(edges, gold, side="left") - 1, 0, _RANGES - 1)
    value: list[dict[str, Any]] = [
        {
            "low": float(edges[place]),
            "high": float(edges[place + 1]),
            "count": int((places == place).sum()),
            "true": float(gold[places == place].mean()),
            "predicted": float(said[places == place].mean()),
        }
        for place in np.unique(places).tolist()
    ]
    rows = [(f"{each['low']:g}–{each['high']:g}", each["count"], each["true"], each["predicted"]) for each in value]
    columns = ("true value", "count", "mean true", "mean predicted")
    return Finding("ranges", value, (Table("Along the scale", columns, rows),))


def _most_wrong(examples: Sequence[Example], gold: Numbers, said: Numbers, worst: int) -> Finding:
    places = np.argsort(-np.abs(said - gold), kind="stable")[:worst].tolist()
    value = [
        {**example_fields(examples[place]), "label": float(gold[place]), "predicted": float(said[place])}
        for place in places
    ]
    rows = [
        (each["label"], each["predicted"], example_line(examples[place]))
        for each, place in zip(value, places, strict=True)
    ]
    return Finding(
        "most_wrong", value, (Table("Most wrong", ("true", "predicted", "text"), rows, "The largest errors."),)
    )
