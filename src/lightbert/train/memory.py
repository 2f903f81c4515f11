"""What a run folder remembers of its recipe, so that nobody goes on with another one by mistake."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.train.distributed import World


def remember(recipe: dict[str, Any], out: Path, world: World, *, may_change: Collection[str]) -> None:
    """Write the resolved recipe; refuse one that contradicts the run whose checkpoints or model are in the folder."""
    path = out / "recipe.json"
    if path.exists() and ((out / "final").exists() or any((out / "checkpoints").glob("step-*"))):
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise InputError(f"'{path}' is damaged; remove it to go on with this recipe") from None
        refuse_other(recipe, before, out, may_change)
    elif world.leads:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(recipe, indent=2) + "\n")
    world.wait()


def refuse_other(recipe: dict[str, Any], before: dict[str, Any], out: Path, may_change: Collection[str]) -> None:
    """Refuse to go on with a run whose recipe said something else that matters."""
    for key, value in json.loads(json.dumps(recipe)).items():
        was = before.get(key)
        if key not in may_change and value != was:
            raise InputError(
                f"'{out}' holds a run with {key} = {was}, this recipe says {value}: "
                f"set out= to another folder, or {key} back"
            )
