"""The runs of one command: every combination of tasks, grid values and seeds, each in its own folder."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from lightbert.config import from_mapping, merge, nested, override
from lightbert.errors import InputError
from lightbert.tasks.finetune.recipe import FinetuneRecipe

PLURAL_KEYS = ("tasks", "seeds", "grid", "per_task")
_NOT_IN_GRIDS = {
    "seed": "write seeds=[0, 1]",
    "task": 'write tasks=["rte", "mrpc"]',
    "out": "its runs have folders of their own in out",
}
"""Key -> how it is set for several runs."""

_LONGEST_NAME = 255
"""The maximum length of a folder's name in bytes that file systems accept."""

_Values = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class PlannedRun:
    """One run: its task, grid values and seed, and the resulting recipe."""

    task: str
    values: _Values
    """The keys of the grid, with this run's values."""
    seed: int
    recipe: Any
    """Of the class given to `plan`, by default a `FinetuneRecipe`."""

    @property
    def settings(self) -> str:
        """The grid values as they are written on the command line."""
        return " ".join(f"{key}={value}" for key, value in self.values)


@dataclass(frozen=True)
class Plan:
    """All runs of a command, in order. A single run uses ``out`` itself, several use subfolders."""

    out: Path
    runs: tuple[PlannedRun, ...]

    @property
    def single(self) -> bool:
        """Whether there is only one run."""
        return len(self.runs) == 1


def plan(base: Mapping[str, Any], given: Mapping[str, Any], kind: Any = FinetuneRecipe) -> Plan:
    """Expand a recipe with its plural keys: ``tasks``, ``seeds``, ``grid.<key> = [values]``, ``per_task.<name>.<key>``.

    kind: the class of the runs' recipes.
    Precedence, lowest first: the recipe, ``per_task``, what is given on the command line, the grid.
    """
    if isinstance(given.get("data"), Mapping) and isinstance(base.get("data"), str):
        base = {**base, "data": {"folder": base["data"]}}
    whole = override(base, given)
    tasks = _read_list(whole, "tasks", str) or [str(whole.get("task", ""))]
    seeds = _read_list(whole, "seeds", int) or [whole.get("seed", 0)]
    axes = list(_axes(whole.get("grid", {})))
    per_task = whole.get("per_task", {})
    if not isinstance(per_task, Mapping) or not all(isinstance(value, Mapping) for value in per_task.values()):
        raise InputError(f"per_task must be a table of keys for each task, got {per_task!r}")
    out = Path(str(FinetuneRecipe.prepare_mapping(whole).get("out", "")))
    settings = list(product(*([(key, value) for value in values] for key, values in axes)))
    combinations = list(product(tasks, settings, seeds))
    folders = [""]
    if len(combinations) > 1:
        folders = _folders([(task if len(tasks) > 1 else "", values, seed) for task, values, seed in combinations])
    plural = PLURAL_KEYS if kind is FinetuneRecipe else ("seeds", "grid")
    runs = []
    for (task, values, seed), folder in zip(combinations, folders, strict=True):
        mapping = override(merge(base, per_task.get(task, {})), given)
        for key, value in (*values, ("seed", seed), *([("task", task)] if task else [])):
            mapping = merge(mapping, nested(key.split("."), value))
        mapping = {key: value for key, value in mapping.items() if key not in plural}
        if folder:
            mapping["out"] = str(out / "runs" / folder)
        runs.append(PlannedRun(task, values, seed, from_mapping(kind, mapping)))
    return Plan(out, tuple(runs))


def expand_data_key(assignments: list[str]) -> list[str]:
    """Expand data=FOLDER to data.folder=FOLDER if other keys of data are given, such as data.bad_rows."""
    if not any(text.startswith("data.") for text in assignments):
        return assignments
    return [re.sub("^data *=", "data.folder=", text) for text in assignments]


def _read_list(whole: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    """Read a plural key as a list of values. A single value is a list of one; brackets and quotes are optional: 1,2."""
    value = whole.get(key, [])
    values = value if isinstance(value, list) else [value]
    if isinstance(value, str):
        values = [name.strip() for name in value.strip("[]").split(",")]
    if kind is int:
        values = [int(each) if isinstance(each, str) and each.isdecimal() else each for each in values]
    for each in values:
        if type(each) is not kind:
            example = {str: '["rte", "mrpc"]', int: "[1, 2, 3]"}[kind]
            raise InputError(f"{key} must be a list such as {example}, got {value!r}")
    if len(set(values)) != len(values):
        raise InputError(f"{key} must not contain duplicates, got {value!r}: they would be the same run")
    return values


def _axes(grid: Any, prefix: str = "") -> Iterable[tuple[str, list[Any]]]:
    if not isinstance(grid, Mapping):
        raise InputError(f"grid must map keys to lists of values, such as grid.lr=[1e-4, 3e-4], got {grid!r}")
    for key, value in grid.items():
        if f"{prefix}{key}" in _NOT_IN_GRIDS:
            raise InputError(f"grid can't vary {key}; {_NOT_IN_GRIDS[key]}")
        if isinstance(value, Mapping):
            yield from _axes(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value:
            _check_unique(f"grid.{prefix}{key}", value)
            yield f"{prefix}{key}", value
        else:
            raise InputError(f"grid.{prefix}{key} must be a list of values, such as [1e-4, 3e-4], got {value!r}")


def _check_unique(key: str, values: list[Any]) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise InputError(f"{key} must not contain duplicates, got {value!r} more than once; list it once")


def _folders(runs: Sequence[tuple[str, _Values, int]]) -> list[str]:
    """Name the folders of runs after their values; names that are too long or not unique contain a hash."""
    names = [_name(task, values, f"seed-{seed}") for task, values, seed in runs]
    count = Counter(names)
    return [
        name if count[name] == 1 and len(name.encode()) <= _LONGEST_NAME else _name_with_hash(*run)
        for name, run in zip(names, runs, strict=True)
    ]


def _name(task: str, values: _Values, end: str = "") -> str:
    """Write a task and values with characters that every file system accepts."""
    parts = [task, *(f"{key}-{value}" for key, value in values), end]
    name = "_".join(part for part in parts if part)
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in name)


def _name_with_hash(task: str, values: _Values, seed: int) -> str:
    """Name a folder with a hash that doesn't depend on the seed, so that ``seed-{seed}`` in a path selects a run."""
    digest = hashlib.sha256(ascii((task, values)).encode()).hexdigest()[:8]
    end = f"_{digest}_seed-{seed}"
    start = _name(task, values).encode()[: _LONGEST_NAME - len(end)]
    return start.decode(errors="ignore") + end
