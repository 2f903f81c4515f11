"""Predictions in SQuAD's own format, as the official scripts and the leaderboard take them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.tasks.example import Question

PREDICTIONS, NULL_ODDS, N_BEST = "predictions.json", "null_odds.json", "nbest.json"


def write_submission(folder: str | Path, examples: Sequence[Question], predictions: Sequence[dict[str, Any]]) -> None:
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
