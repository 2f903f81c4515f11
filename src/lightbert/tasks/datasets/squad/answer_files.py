"""Prediction files in SQuAD format: written for the official scripts, and scored by their rules."""

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
    """Write the answers, null scores and n-best lists to a folder, each as a JSON file {id: …}."""
    folder = Path(folder)
    ids = [each.id for each in examples]
    seen: set[str] = set()
    for identity in ids:
        if not identity or identity in seen:
            raise InputError(f"every question must have a unique id, got {identity!r}")
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
    """Score a prediction file, {id: answer}, by the rules of SQuAD 1.1 or 2.0, whichever the data file is.

    na_prob_path: a file {id: number} of no-answer scores. Answers with a score above the threshold count as empty, and
    the best thresholds are computed.
    """
    document = read_json(data_path)
    predictions = _values(predictions_path, str, "text")
    try:
        truths = [_truth(entry.fields, entry.place) for entry in entries(document)]
    except InputError as error:
        raise InputError(f"in '{data_path}', {error}; give a file in SQuAD format") from None
    if _is_version_2(document):
        odds = None if na_prob_path is None else _values(na_prob_path, (int, float), "number")
        return score_2_0(truths, predictions, odds, na_prob_threshold)
    if na_prob_path is not None:
        raise InputError(
            f"no-answer scores require SQuAD 2.0, got SQuAD 1.1 in '{data_path}'; leave out '{na_prob_path}'"
        )
    return score_1_1(truths, predictions)


def _truth(fields: dict[str, Any], place: str) -> tuple[str, list[str]]:
    answers = field(fields, "answers", list, place)
    texts = [field(answer, "text", str, f"{place}.answers[{number}]") for number, answer in enumerate(answers)]
    return field(fields, "id", str, place), texts


def _is_version_2(document: dict[str, Any]) -> bool:
    """Whether a file is SQuAD 2.0: by its version, or without one, by the field "is_impossible"."""
    version = document.get("version")
    if isinstance(version, str) and version:
        return version.lower().lstrip("v").startswith("2")
    return any("is_impossible" in entry.fields for entry in entries(document))


def _values(path: str | Path, kind: type | tuple[type, ...], name: str) -> dict[str, Any]:
    values = read_json(path)
    for identity, value in values.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"'{path}' must have a {name} for every question, got {value!r} for {identity!r}")
    return values
