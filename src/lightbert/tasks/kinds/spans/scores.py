"""The numbers of SQuAD's published scripts for 1.1 and for 2.0, in percent.

Deviation: where the scripts stop with a traceback (no question, no prediction that fits, HasAns with a prediction
missing) there is a sentence, or the questions that have a prediction are counted.
"""

import sys
from collections.abc import Mapping, Sequence

from lightbert.errors import InputError
from lightbert.tasks.kinds.spans.comparison import exact, f1, normalized

Truths = Sequence[tuple[str, Sequence[str]]]
"""The id of each question and the texts of its answers; an id may come twice."""


def score_1_1(truths: Truths, predictions: Mapping[str, str]) -> dict[str, float]:
    """Exact match and F1 over all questions; one without a prediction counts as 0."""
    _tell_missing(truths, predictions, "count as 0")
    right, overlap = 0, 0.0
    for identity, answers in truths:
        if identity in predictions:
            if not answers:
                raise InputError(f"the question {identity!r} has no answer, which SQuAD 2.0 allows and 1.1 not")
            right += max(exact(predictions[identity], answer) for answer in answers)
            # One after the other, as the script adds them: sum() rounds differently from Python 3.12 on.
            overlap += max(f1(predictions[identity], answer, both_empty=0) for answer in answers)
    return {"exact_match": 100.0 * right / len(truths), "f1": 100.0 * overlap / len(truths)}


def score_2_0(
    truths: Truths,
    predictions: Mapping[str, str],
    na_probs: Mapping[str, float] | None = None,
    na_prob_threshold: float = 1.0,
) -> dict[str, float]:
    """Exact match and F1 over the questions that have a prediction, and apart for those with and without an answer."""
    _tell_missing(truths, predictions, "are left out")
    answerable = {identity: bool(answers) for identity, answers in truths}
    exacts: dict[str, float] = {}
    f1s: dict[str, float] = {}
    for identity, answers in truths:
        if identity in predictions:
            accepted = [answer for answer in answers if normalized(answer)] or [""]
            exacts[identity] = max(exact(predictions[identity], answer) for answer in accepted)
            f1s[identity] = max(f1(predictions[identity], answer, both_empty=1) for answer in accepted)
    if not exacts:
        raise InputError("none of the predictions belongs to a question of the data; give the file for the same data")
    odds = dict.fromkeys(exacts, 0.0) if na_probs is None else na_probs
    absent = next((identity for identity in exacts if identity not in odds), None)
    if absent is not None:
        raise InputError(f"the no-answer file has no number for the question {absent!r}; give one for every prediction")

    judged = [
        {id_: float(not answerable[id_]) if odds[id_] > na_prob_threshold else value for id_, value in scores.items()}
        for scores in (exacts, f1s)
    ]
    result = _averages("", list(exacts), *judged)
    result |= _averages("HasAns_", [identity for identity in exacts if answerable[identity]], *judged)
    result |= _averages("NoAns_", [identity for identity in exacts if not answerable[identity]], *judged)
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
    """The highest mean that a threshold could give, and that threshold.

    First no question is answered, then one more at a time, the surest first: an answerable one gains its score, an
    unanswerable one that gets an answer loses the point it had.
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


def _tell_missing(truths: Truths, predictions: Mapping[str, str], fate: str) -> None:
    if not truths:
        raise InputError("the data hold no question; give a file in SQuAD's own format")
    missing = [identity for identity, _ in truths if identity not in predictions]
    if missing:
        some = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        print(f"{len(missing):,} of {len(truths):,} questions have no prediction and {fate}: {some}", file=sys.stderr)
