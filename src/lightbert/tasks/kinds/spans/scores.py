"""The scores of the official SQuAD scripts for 1.1 and 2.0, in percent.

Deviation: the scripts fail with a traceback if there is no question, if no prediction matches, or if an answerable
question has no prediction. Here the first two raise an `InputError`, and the last is left out of the averages.
"""

import sys
from collections.abc import Mapping, Sequence

from lightbert.errors import InputError
from lightbert.tasks.kinds.spans.comparison import exact, f1, normalize_answer

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
            right += max(exact(predictions[identity], answer) for answer in answers)
            # Added one by one like the script: since Python 3.12, sum() rounds differently.
            overlap += max(f1(predictions[identity], answer, both_empty=0) for answer in answers)
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
            exacts[identity] = max(exact(predictions[identity], answer) for answer in accepted)
            f1s[identity] = max(f1(predictions[identity], answer, both_empty=1) for answer in accepted)
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
