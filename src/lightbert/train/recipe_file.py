"""What a run folder remembers of its recipe, so that nobody goes on with another one by mistake."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from lightbert.errors import InputError
from lightbert.files import make_folder, write_atomic
from lightbert.train.distributed import World


def save_recipe(recipe: dict[str, Any], out: Path, world: World, *, may_change: Collection[str]) -> None:
    """Write the resolved recipe; refuse one that contradicts the run whose checkpoints or model are in the folder."""
    before = load_recipe(out)
    if before is not None:
        check_recipe(recipe, before, out, may_change)
    elif world.is_main:
        make_folder(out)
        write_atomic(out / "recipe.json", json.dumps(recipe, indent=2) + "\n")
    world.barrier()


def load_recipe(out: Path) -> dict[str, Any] | None:
    """The recipe of the run whose checkpoints or model are in the folder; None when there are none."""
    path = out / "recipe.json"
    if not path.exists() or not ((out / "final").exists() or any((out / "checkpoints").glob("step-*"))):
        return None
    try:
        before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise InputError(f"'{path}' is damaged; remove it to go on with this recipe") from None
    return before


def check_recipe(recipe: dict[str, Any], before: dict[str, Any], out: Path, may_change: Collection[str]) -> None:
    """Refuse to go on with a run whose recipe said something else that matters."""
    now = {key: value for key, value in json.loads(json.dumps(recipe)).items() if key not in may_change}
    values, earlier = dict(_single(now)), dict(_single({key: before.get(key) for key in now}))
    for key in values | earlier:
        value, was = values.get(key), earlier.get(key)
        if value != was:
            raise InputError(
                f"'{out}' holds a run with {key} = {was}, this recipe says {value}: "
                f"set out= to another folder, or {key} back"
            )


def _single(recipe: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a recipe by the keys that the command line has for them, such as ``transfer.maps``."""
    for key, value in recipe.items():
        if isinstance(value, dict):
            yield from _single(value, f"{above}{key}.")
        else:
            yield above + key, value
