"""The metrics that the papers report. Accuracy and F1 are in [0, 1], correlations in [-1, 1]."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError


def accuracy(truth: Sequence[str], predicted: Sequence[str]) -> float:
    """The fraction of correct predictions."""
    _check(truth, predicted)
    return sum(a == b for a, b in zip(truth, predicted, strict=True)) / len(truth)


def f1(truth: Sequence[str], predicted: Sequence[str], positive: str) -> float:
    """The harmonic mean of precision and recall of one label; 0 if there are no true positives."""
    _check(truth, predicted)
    hits = sum(a == b == positive for a, b in zip(truth, predicted, strict=True))
    total = sum(label == positive for labels in (truth, predicted) for label in labels)
    return 2 * hits / total if total else 0.0


def macro_f1(truth: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean F1 over the labels that occur in the truth or in the predictions."""
    counts = _counts(truth, predicted, sorted({*truth, *predicted}))
    return float(np.mean(2 * counts.diagonal() / (counts.sum(0) + counts.sum(1))))


def matthews(truth: Sequence[str], predicted: Sequence[str]) -> float:
    """Matthews' correlation coefficient, for any number of labels; 0 if either side is constant."""
    counts = _counts(truth, predicted, sorted({*truth, *predicted})).astype(np.float64)
    n, true, said = counts.sum(), counts.sum(1), counts.sum(0)
    variance = (n * n - true @ true) * (n * n - said @ said)
    return float((n * counts.trace() - true @ said) / np.sqrt(variance)) if variance else 0.0


def pearson(truth: Sequence[float], predicted: Sequence[float]) -> float:
    """Pearson's correlation; 0 if either side is constant or contains non-finite values."""
    _check(truth, predicted)
    a, b = np.asarray(truth, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.clip(a @ b / scale, -1, 1)) if scale else 0.0


def spearman(truth: Sequence[float], predicted: Sequence[float]) -> float:
    """Spearman's rank correlation, with mean ranks for ties; 0 in the same cases as `pearson`."""
    _check(truth, predicted)
    finite = np.isfinite(np.asarray([truth, predicted], dtype=np.float64)).all()
    return pearson(_ranks(truth), _ranks(predicted)) if finite else 0.0


def squared_error(truth: Sequence[float], predicted: Sequence[float]) -> float:
    """The mean squared error."""
    _check(truth, predicted)
    return float(np.mean((np.asarray(truth, dtype=np.float64) - np.asarray(predicted, dtype=np.float64)) ** 2))


def confusion(truth: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> list[list[int]]:
    """The confusion matrix: true labels in rows, predicted labels in columns, in the order of ``labels``."""
    counts: list[list[int]] = _counts(truth, predicted, labels).tolist()
    return counts


def _counts(truth: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> NDArray[np.int64]:
    """The confusion matrix as an array; pairs with another label aren't counted."""
    _check(truth, predicted)
    index = {label: number for number, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    pairs = [(index[a], index[b]) for a, b in zip(truth, predicted, strict=True) if a in index and b in index]
    np.add.at(counts, tuple(np.array(pairs, dtype=np.int64).reshape(-1, 2).T), 1)
    return counts


def _ranks(values: Sequence[float]) -> Any:
    """The rank of each value; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _check(truth: Sequence[object], predicted: Sequence[object]) -> None:
    if len(truth) != len(predicted):
        raise InputError(
            f"there must be one prediction per example, got {len(predicted):,} for {len(truth):,} examples"
        )
    if not len(truth):
        raise InputError("metrics require at least one labelled example, got none: give a split with labels")
