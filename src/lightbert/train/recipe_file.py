"""The recipe saved in a run folder, and the check that a resumed run has the same recipe."""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lightbert.errors import InputError
from lightbert.files import make_folder, write_atomic
from lightbert.train.distributed import World

DATA_CONTENT = "data_content"
"""The key of recipe.json that holds the hash of the training data."""


def save_recipe(
    recipe: dict[str, Any],
    out: Path,
    world: World,
    *,
    may_change: Collection[str],
    defaults: Mapping[str, Any],
    data_content: str,
    finished: int = 0,
    begun: bool = True,
) -> None:
    """Save the resolved recipe; if the folder already holds a run, check first that the recipes match.

    data_content: a hash of the training data of the current phase, which must not change while a run is interrupted.
    finished: the number of phases that are over. begun: whether the next one has begun; the others may change.
    """
    before = load_recipe(out)
    if before is not None:
        later = max(0, finished if begun else finished - 1)
        check_recipe(_first(recipe, later), _first(before, later), out, may_change, defaults)
        # Runs of earlier versions have no hash.
        if not finished and before.get(DATA_CONTENT, data_content) != data_content:
            raise InputError(
                f"the data of the run in '{out}' has changed since the run was started; restore the data, or set out= "
                "to another folder to train on the new data"
            )
        data_content = before.get(DATA_CONTENT, data_content)
    if world.is_main and (before is None or before.get("phases") != recipe.get("phases")):
        make_folder(out)
        write_atomic(out / "recipe.json", json.dumps(recipe | {DATA_CONTENT: data_content}, indent=2) + "\n")
    world.barrier()


def _first(recipe: dict[str, Any], later: int) -> dict[str, Any]:
    """Return the recipe with the first ones of its later phases."""
    return recipe | {"phases": recipe["phases"][:later]} if recipe.get("phases") else recipe


def load_recipe(out: Path) -> dict[str, Any] | None:
    """Load the recipe of the run in a folder; None if the folder has neither checkpoints nor a final model."""
    path = out / "recipe.json"
    if not path.exists() or not ((out / "final").exists() or any((out / "checkpoints").glob("step-*"))):
        return None
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        before = None
    if not isinstance(before, dict):
        raise InputError(f"'{path}' is damaged; remove it to resume with this recipe")
    return before


def check_recipe(
    recipe: dict[str, Any],
    before: dict[str, Any],
    out: Path,
    may_change: Collection[str],
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Check that two recipes of a run agree, except for the keys that may change.

    defaults: the values, by dotted key, of keys that the version which started the run didn't have.
    """
    now = {key: value for key, value in json.loads(json.dumps(recipe)).items() if key not in may_change}
    values, earlier = dict(flatten(now)), dict(flatten({key: before[key] for key in now if key in before}))
    for key in values | earlier:
        value, was = values.get(key), earlier.get(key, defaults.get(key))
        if value != was:
            raise InputError(
                f"the run in '{out}' has {key} = {was}, this recipe has {value}; "
                f"set out= to another folder, or restore {key}"
            )


def flatten(recipe: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a recipe with dotted keys, such as ``transfer.maps``."""
    for key, value in recipe.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
