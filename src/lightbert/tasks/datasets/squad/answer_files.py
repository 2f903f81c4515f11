"""Prediction files in SQuAD's own format: written as the official scripts take them, and scored by their rules."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.tasks.datasets.squad.document import entries, field, read_json
from lightbert.tasks.example import Question
from lightbert.tasks.kinds.spans.scores import score_1_1, score_2_0

PREDICTIONS, NULL_ODDS, N_BEST = "predictions.json", "null_odds.json", "nbest.json"


def write_answers(folder: str | Path, examples: Sequence[Question], predictions: Sequence[dict[str, Any]]) -> None:
    """Write the answers, the null scores and the n-best lists, each a file {id: …}, into a folder."""
    folder = Path(folder)
    ids = [each.id for each in examples]
    seen: set[str] = set()
    for identity in ids:
        if not identity or identity in seen:
            raise InputError(f"the id {identity!r} does not name one question; give each question an id of its own")
        seen.add(identity)
    folder.mkdir(parents=True, exist_ok=True)
    for file, key in ((PREDICTIONS, "answer"), (NULL_ODDS, "null_score"), (N_BEST, "n_best")):
        content = {identity: prediction[key] for identity, prediction in zip(ids, predictions, strict=True)}
        write_atomic(folder / file, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def score(
    data_path: str | Path,
    predictions_path: str | Path,
    na_prob_path: str | Path | None = None,
    *,
    na_prob_threshold: float = 1.0,
) -> dict[str, float]:
    """Score a prediction file, {id: answer}, by the rules of the data file's version, SQuAD 1.1 or 2.0.

    `na_prob_path` is a file {id: number}, high where there is no answer: an answer above the threshold counts as
    empty, and the best thresholds are looked for.
    """
    document = read_json(data_path)
    predictions = _values(predictions_path, str, "text")
    try:
        truths = [_truth(entry.fields, entry.place) for entry in entries(document)]
    except InputError as error:
        raise InputError(f"in '{data_path}', {error}; give a file in SQuAD's own format") from None
    if _is_second(document):
        odds = None if na_prob_path is None else _values(na_prob_path, (int, float), "number")
        return score_2_0(truths, predictions, odds, na_prob_threshold)
    if na_prob_path is not None:
        raise InputError(f"'{data_path}' is SQuAD 1.1, where every question has an answer; leave out '{na_prob_path}'")
    return score_1_1(truths, predictions)


def _truth(fields: dict[str, Any], place: str) -> tuple[str, list[str]]:
    answers = field(fields, "answers", list, place)
    texts = [field(answer, "text", str, f"{place}.answers[{number}]") for number, answer in enumerate(answers)]
    return field(fields, "id", str, place), texts


def _is_second(document: dict[str, Any]) -> bool:
    """Whether a file is SQuAD 2.0: it says so, or it says nothing and tells the impossible questions apart."""
    version = document.get("version")
    if isinstance(version, str) and version:
        return version.lower().lstrip("v").startswith("2")
    return any("is_impossible" in entry.fields for entry in entries(document))


def _values(path: str | Path, kind: type | tuple[type, ...], name: str) -> dict[str, Any]:
    values = read_json(path)
    for identity, value in values.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"'{path}' has {value!r} for the question {identity!r}; it must be a {name}")
    return values
