"""How well predictions agree with the truth: the numbers that the papers report, by scikit-learn and SciPy.

Shares are between 0 and 1, correlations between -1 and 1.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lightbert.errors import InputError


def accuracy(truth: Sequence[str], predicted: Sequence[str]) -> float:
    """The share of predictions that are right."""
    _check(truth, predicted)
    return float(_sklearn().accuracy_score(truth, predicted))


def f1(truth: Sequence[str], predicted: Sequence[str], positive: str) -> float:
    """The harmonic mean of precision and recall of one label; 0 when it is never predicted or never right."""
    _check(truth, predicted)
    return float(_sklearn().f1_score(truth, predicted, labels=[positive], average="macro", zero_division=0))


def macro_f1(truth: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean F1 of the labels that occur, be it only in the predictions."""
    _check(truth, predicted)
    return float(_sklearn().f1_score(truth, predicted, average="macro", zero_division=0))


def matthews(truth: Sequence[str], predicted: Sequence[str]) -> float:
    """Matthews' correlation coefficient, for any number of labels; 0 when either side says always the same."""
    _check(truth, predicted)
    if len(set(truth)) < 2 or len(set(predicted)) < 2:
        return 0.0
    return float(_sklearn().matthews_corrcoef(truth, predicted))


def pearson(truth: Sequence[float], predicted: Sequence[float]) -> float:
    """Pearson's correlation; 0 when either side is constant, and when a diverged model predicts no finite numbers."""
    return _correlation(_scipy().pearsonr, truth, predicted)


def spearman(truth: Sequence[float], predicted: Sequence[float]) -> float:
    """Spearman's rank correlation, equal numbers sharing their mean rank; 0 as for Pearson's."""
    return _correlation(_scipy().spearmanr, truth, predicted)


def squared_error(truth: Sequence[float], predicted: Sequence[float]) -> float:
    """The mean of the squared differences."""
    _check(truth, predicted)
    return float(np.mean((np.asarray(truth, dtype=np.float64) - np.asarray(predicted, dtype=np.float64)) ** 2))


def confusion(truth: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> list[list[int]]:
    """How often each label, a row, was taken for each label, a column; both in the order of ``labels``."""
    _check(truth, predicted)
    counts: list[list[int]] = _sklearn().confusion_matrix(truth, predicted, labels=list(labels)).tolist()
    return counts


def _correlation(function: Callable[..., Any], truth: Sequence[float], predicted: Sequence[float]) -> float:
    _check(truth, predicted)
    a, b = np.asarray(truth, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()) or np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    with warnings.catch_warnings():
        # Numbers that are almost constant: the coefficient is inexact, and still the best there is.
        warnings.simplefilter("ignore")
        value = float(function(a, b).statistic)
    return value if np.isfinite(value) else 0.0


def _check(truth: Sequence[object], predicted: Sequence[object]) -> None:
    if len(truth) != len(predicted):
        raise InputError(f"{len(predicted):,} predictions for {len(truth):,} examples; give one for each")
    if not len(truth):
        raise InputError("there is not a single example to judge predictions by; give a split whose labels are known")


def _sklearn() -> Any:
    try:
        from sklearn import metrics
    except ImportError:
        raise InputError("judging needs scikit-learn; install it with: pip install 'lightbert[metrics]'") from None
    return metrics


def _scipy() -> Any:
    try:
        from scipy import stats
    except ImportError:
        raise InputError("judging needs SciPy; install it with: pip install 'lightbert[metrics]'") from None
    return stats
