"""Choose the null threshold: the null score above which a question is left unanswered."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from lightbert.errors import InputError
from lightbert.tasks.example import Question
from lightbert.tasks.kinds.spans.comparison import f1


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
    return max(f1(answer, each.text, both_empty=1) for each in question.answers)
