"""The metrics that the papers report, computed by scikit-learn and SciPy.

Accuracy and F1 are in [0, 1], correlations in [-1, 1].
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lightbert.errors import InputError, required


def accuracy(truth: Sequence[str], predicted: Sequence[str]) -> float:
    """The fraction of correct predictions."""
    _check(truth, predicted)
    return float(_sklearn().accuracy_score(truth, predicted))


def f1(truth: Sequence[str], predicted: Sequence[str], positive: str) -> float:
    """The harmonic mean of precision and recall of one label; 0 if there are no true positives."""
    _check(truth, predicted)
    return float(_sklearn().f1_score(truth, predicted, labels=[positive], average="macro", zero_division=0))


def macro_f1(truth: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean F1 over the labels that occur in the truth or in the predictions."""
    _check(truth, predicted)
    return float(_sklearn().f1_score(truth, predicted, average="macro", zero_division=0))


def matthews(truth: Sequence[str], predicted: Sequence[str]) -> float:
    """Matthews' correlation coefficient, for any number of labels; 0 if either side is constant."""
    _check(truth, predicted)
    if len(set(truth)) < 2 or len(set(predicted)) < 2:
        return 0.0
    return float(_sklearn().matthews_corrcoef(truth, predicted))


def pearson(truth: Sequence[float], predicted: Sequence[float]) -> float:
    """Pearson's correlation; 0 if either side is constant or contains non-finite values."""
    return _correlation(_scipy().pearsonr, truth, predicted)


def spearman(truth: Sequence[float], predicted: Sequence[float]) -> float:
    """Spearman's rank correlation, with mean ranks for ties; 0 in the same cases as `pearson`."""
    return _correlation(_scipy().spearmanr, truth, predicted)


def squared_error(truth: Sequence[float], predicted: Sequence[float]) -> float:
    """The mean squared error."""
    _check(truth, predicted)
    return float(np.mean((np.asarray(truth, dtype=np.float64) - np.asarray(predicted, dtype=np.float64)) ** 2))


def confusion(truth: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> list[list[int]]:
    """The confusion matrix: true labels in rows, predicted labels in columns, in the order of ``labels``."""
    _check(truth, predicted)
    counts: list[list[int]] = _sklearn().confusion_matrix(truth, predicted, labels=list(labels)).tolist()
    return counts


def _correlation(function: Callable[..., Any], truth: Sequence[float], predicted: Sequence[float]) -> float:
    _check(truth, predicted)
    a, b = np.asarray(truth, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()) or np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    with warnings.catch_warnings():
        # SciPy warns that the coefficient is inexact if the values are almost constant.
        warnings.simplefilter("ignore")
        value = float(function(a, b).statistic)
    return value if np.isfinite(value) else 0.0


def _check(truth: Sequence[object], predicted: Sequence[object]) -> None:
    if len(truth) != len(predicted):
        raise InputError(
            f"there must be one prediction per example, got {len(predicted):,} for {len(truth):,} examples"
        )
    if not len(truth):
        raise InputError("metrics require at least one labelled example, got none: give a split with labels")


def _sklearn() -> Any:
    with required("metrics require scikit-learn", "lightbert[metrics]"):
        from sklearn import metrics
    return metrics


def _scipy() -> Any:
    with required("metrics require SciPy", "lightbert[metrics]"):
        from scipy import stats
    return stats
