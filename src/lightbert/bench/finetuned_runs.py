"""Finished fine-tunings of named tasks, read from their run folders."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightbert.errors import InputError


@dataclass(frozen=True)
class FinetunedRun:
    """A finished fine-tuning: the task, the seed, and the score by the metric that ranks runs."""

    folder: Path
    task: str
    seed: int
    metric: str
    score: float


def finetuned_runs(folders: Iterable[Path]) -> list[FinetunedRun]:
    """The finished fine-tunings in and below some folders, by task and seed; a seed occurs once for each task."""
    found: dict[tuple[str, int], FinetunedRun] = {}
    for path in sorted({path for folder in folders for path in folder.rglob("result.json")}):
        recipe = read_object(path.with_name("recipe.json"))
        # Pre-trainings have no task.
        if not recipe.get("task"):
            continue
        result = read_object(path)
        key = (recipe["task"], recipe["seed"])
        if key in found:
            raise InputError(f"'{path.parent}' repeats seed {key[1]} of {key[0]}; give one run for each seed")
        found[key] = FinetunedRun(path.parent, *key, result["metric"], result["metrics"][result["metric"]])
    return [found[key] for key in sorted(found)]


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object of a run folder."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' can't be read: {error}; give the folder of a finished run") from error
    if not isinstance(values, dict):
        raise InputError(f"'{path}' must be a JSON object")
    return values
