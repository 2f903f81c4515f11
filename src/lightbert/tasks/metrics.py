"""The metrics that the papers report. Accuracy and F1 are in [0, 1], correlations in [-1, 1].

The scores of SQuAD are in percent and equal those of the official scripts for 1.1 and 2.0.
Deviation: the scripts fail with a traceback if there is no question, if no prediction matches, or if an answerable
question has no prediction. Here the first two raise an `InputError`, and the last is left out of the averages.
"""

import re
import string
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError
from lightbert.tasks.example import Question


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


Truths = Sequence[tuple[str, Sequence[str]]]
"""The id and the accepted answers of each question; ids may repeat."""


def score_1_1(truths: Truths, predictions: Mapping[str, str]) -> dict[str, float]:
    """Exact match and F1 over all questions; a missing prediction scores 0."""
    _warn_about_missing(truths, predictions, "score 0")
    right, overlap = 0, 0.0
    for identity, answers in truths:
        if identity in predictions:
            if not answers:
                raise InputError(
                    f"every question of SQuAD 1.1 must have an answer, got none for {identity!r}; use task squad2"
                )
            right += max(answer_exact(predictions[identity], answer) for answer in answers)
            # Added one by one like the script: since Python 3.12, sum() rounds differently.
            overlap += max(answer_f1(predictions[identity], answer, both_empty=0) for answer in answers)
    return {"exact_match": 100.0 * right / len(truths), "f1": 100.0 * overlap / len(truths)}


def score_2_0(
    truths: Truths,
    predictions: Mapping[str, str],
    na_probs: Mapping[str, float] | None = None,
    na_prob_threshold: float = 1.0,
) -> dict[str, float]:
    """Exact match and F1 over the questions with a prediction: all, answerable (HasAns) and unanswerable (NoAns)."""
    _warn_about_missing(truths, predictions, "are left out")
    answerable = {identity: bool(answers) for identity, answers in truths}
    exacts: dict[str, float] = {}
    f1s: dict[str, float] = {}
    for identity, answers in truths:
        if identity in predictions:
            accepted = [answer for answer in answers if normalize_answer(answer)] or [""]
            exacts[identity] = max(answer_exact(predictions[identity], answer) for answer in accepted)
            f1s[identity] = max(answer_f1(predictions[identity], answer, both_empty=1) for answer in accepted)
    if not exacts:
        raise InputError(
            "predictions must share question ids with the data, got none in common; give the file for the same data"
        )
    odds = dict.fromkeys(exacts, 0.0) if na_probs is None else na_probs
    missing = next((identity for identity in exacts if identity not in odds), None)
    if missing is not None:
        raise InputError(
            f"the no-answer file must have a number for every prediction, got none for the question {missing!r}"
        )

    thresholded = [
        {id_: float(not answerable[id_]) if odds[id_] > na_prob_threshold else value for id_, value in scores.items()}
        for scores in (exacts, f1s)
    ]
    result = _averages("", list(exacts), *thresholded)
    result |= _averages("HasAns_", [identity for identity in exacts if answerable[identity]], *thresholded)
    result |= _averages("NoAns_", [identity for identity in exacts if not answerable[identity]], *thresholded)
    if na_probs is not None:
        for name, scores in (("best_exact", exacts), ("best_f1", f1s)):
            result[name], result[f"{name}_thresh"] = _best(scores, predictions, na_probs, answerable)
    return result


def _averages(prefix: str, ids: list[str], exacts: dict[str, float], f1s: dict[str, float]) -> dict[str, float]:
    if not ids:
        return {}
    means = {name: 100.0 * sum(of[id_] for id_ in ids) / len(ids) for name, of in (("exact", exacts), ("f1", f1s))}
    return {f"{prefix}{name}": value for name, value in (means | {"total": len(ids)}).items()}


def _best(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    na_probs: Mapping[str, float],
    answerable: Mapping[str, bool],
) -> tuple[float, float]:
    """The best mean score over all thresholds, and the threshold that gives it.

    Starts with all answers empty and adds predictions by increasing no-answer score: an answerable question gains its
    score, an unanswerable question with a non-empty answer loses 1.
    """
    current: float = sum(not has for has in answerable.values())
    best, threshold = current, 0.0
    for identity in sorted(na_probs, key=na_probs.__getitem__):
        if identity not in scores:
            continue
        current += scores[identity] if answerable[identity] else -bool(predictions[identity])
        if current > best:
            best, threshold = current, na_probs[identity]
    return 100.0 * best / len(scores), threshold


def _warn_about_missing(truths: Truths, predictions: Mapping[str, str], consequence: str) -> None:
    if not truths:
        raise InputError("the data must contain at least one question, got none; give a file in SQuAD format")
    missing = [identity for identity, _ in truths if identity not in predictions]
    if missing:
        some = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        print(
            f"{len(missing):,} of {len(truths):,} questions have no prediction and {consequence}: {some}",
            file=sys.stderr,
        )


_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Normalize an answer for comparison."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_DELETE_PUNCTUATION)).split())


def answer_exact(prediction: str, truth: str) -> int:
    """1 if the normalized answers are equal, else 0."""
    return int(normalize_answer(prediction) == normalize_answer(truth))


def answer_f1(prediction: str, truth: str, *, both_empty: int) -> float:
    """Word-level F1 of two normalized answers.

    It is 0 if they have no word in common; two empty answers give `both_empty`: 0 in SQuAD 1.1, 1 in 2.0.
    """
    predicted, true = normalize_answer(prediction).split(), normalize_answer(truth).split()
    if not predicted and not true:
        return both_empty
    common = (Counter(predicted) & Counter(true)).total()
    if not common:
        return 0
    precision, recall = common / len(predicted), common / len(true)
    return 2 * precision * recall / (precision + recall)


def best_threshold(examples: Sequence[Question], predictions: Sequence[dict[str, Any]]) -> float:
    """The threshold that maximizes the mean F1 of these predictions.

    It is one of their null scores, the lowest one on ties, or below all of them if empty answers are always better.
    It is meaningful only if there are both answerable and unanswerable questions.
    """
    if not examples:
        raise InputError("choosing a threshold requires at least one question, got none; give a dev set with answers")
    gains = sorted(
        (prediction["null_score"], _gain(question, prediction))
        for question, prediction in zip(examples, predictions, strict=True)
    )
    best, threshold, total = 0.0, gains[0][0] - 1.0, 0.0
    for null_score, group in groupby(gains, key=lambda gain: gain[0]):
        total += sum(gain for _, gain in group)
        if total > best:
            best, threshold = total, null_score
    return float(threshold)


def _gain(question: Question, prediction: dict[str, Any]) -> float:
    """The F1 of answering minus the F1 of not answering, by the rules of SQuAD 2.0."""
    if question.answers is None:
        raise InputError(
            f"choosing a threshold requires answers, got none for {question.id or question.question!r}; give a dev set"
        )
    answer = prediction["n_best"][0]["answer"] if prediction["n_best"] else ""
    if not question.answers:
        return -float(bool(answer))
    return max(answer_f1(answer, accepted.text, both_empty=1) for accepted in question.answers)
