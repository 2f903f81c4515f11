"""From which null score on a question had better be left unanswered."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from lightbert.errors import InputError
from lightbert.tasks.example import Question
from lightbert.tasks.kinds.spans.comparison import f1


def best_threshold(examples: Sequence[Question], predictions: Sequence[dict[str, Any]]) -> float:
    """The null score above which giving no answer makes the mean F1 of these predictions highest.

    It is one of their null scores, the lowest where several are as good; below all of them when no answer is the best
    answer throughout. It needs questions with and without an answer to say anything.
    """
    if not examples:
        raise InputError("there is not a single question to choose a threshold by; give a dev set with answers")
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
    """What answering gives more than not answering, by the rules of SQuAD 2.0."""
    if question.answers is None:
        raise InputError(
            f"the answers of the question {question.id or question.question!r} are unknown; give a dev set"
        )
    answer = prediction["n_best"][0]["answer"] if prediction["n_best"] else ""
    if not question.answers:
        return -float(bool(answer))
    return max(f1(answer, each.text, both_empty=1) for each in question.answers)
