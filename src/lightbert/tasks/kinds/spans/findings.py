"""Error analysis of question answering: by answerability and question word, calibration, worst answers."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lightbert.tasks.example import Question
from lightbert.tasks.kinds.findings import Finding, Table, calibration_finding
from lightbert.tasks.kinds.kind import Prediction
from lightbert.tasks.kinds.spans.scores import exact, f1, normalize_answer

_QUESTION_WORD = re.compile(r"\b(how (?:many|much|long|old|far)|how|what|which|whom?|whose|when|where|why)\b")


class ScoredAnswer(NamedTuple):
    """A question, its prediction, and its scores by SQuAD's rules."""

    question: Question
    prediction: Prediction
    exact: bool
    f1: float


def answer_findings(examples: Sequence[Question], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
    """Analyse predicted answers."""
    scored = [score_answer(question, prediction) for question, prediction in zip(examples, predictions, strict=True)]
    return [
        _breakdown("answerable", "By answerability", scored, lambda question: "yes" if question.answers else "no"),
        _breakdown("question_words", "By question word", scored, question_word),
        calibration_finding(
            [each.prediction["probability"] for each in scored],
            [each.exact for each in scored],
            None,
            "Probability of the answer among the candidates, and whether it is an exact match",
        ),
        _most_wrong(scored, worst),
    ]


def score_answer(question: Question, prediction: Prediction) -> ScoredAnswer:
    """Score an answer against all accepted answers; the best match counts."""
    accepted = [answer.text for answer in question.answers or () if normalize_answer(answer.text)] or [""]
    predicted = prediction["answer"]
    return ScoredAnswer(
        question,
        prediction,
        exact=any(exact(predicted, answer) for answer in accepted),
        f1=max(f1(predicted, answer, both_empty=1) for answer in accepted),
    )


def question_word(question: Question) -> str:
    """The first question word of a question; "other" if there is none."""
    found = _QUESTION_WORD.search(question.question.lower())
    return found[1] if found else "other"


def _breakdown(key: str, title: str, scored: Sequence[ScoredAnswer], group: Callable[[Question], str]) -> Finding:
    groups: dict[str, list[ScoredAnswer]] = {}
    for each in scored:
        groups.setdefault(group(each.question), []).append(each)
    value = {
        name: {
            "count": len(members),
            "exact_match": sum(each.exact for each in members) / len(members),
            "f1": sum(each.f1 for each in members) / len(members),
            "answered": sum(bool(each.prediction["answer"]) for each in members),
        }
        for name, members in sorted(groups.items(), key=lambda item: -len(item[1]))
    }
    rows = [(name, each["count"], each["answered"], each["exact_match"], each["f1"]) for name, each in value.items()]
    columns = (key.replace("_", " ").removesuffix("s"), "count", "answered", "exact match", "F1")
    return Finding(key, value, (Table(title, columns, rows),))


def _most_wrong(scored: Sequence[ScoredAnswer], worst: int) -> Finding:
    wrong = [each for each in scored if not each.exact]
    wrong = sorted(wrong, key=lambda each: (each.f1, -each.prediction["probability"]))[:worst]
    value: list[dict[str, Any]] = [
        {
            "id": each.question.id,
            "question": each.question.question,
            "context": each.question.context,
            "answers": [answer.text for answer in each.question.answers or ()],
            "predicted": each.prediction["answer"],
            "probability": each.prediction["probability"],
            "f1": each.f1,
        }
        for each in wrong
    ]
    rows = [
        (
            each["question"],
            " / ".join(dict.fromkeys(each["answers"])) or "(no answer)",
            each["predicted"] or "(no answer)",
            each["probability"],
            each["f1"],
        )
        for each in value
    ]
    columns = ("question", "true", "predicted", "probability", "F1")
    return Finding("most_wrong", value, (Table("Most wrong", columns, rows, "Lowest F1, most confident first."),))
