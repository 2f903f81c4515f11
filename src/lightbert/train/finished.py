"""The end of a run: its result is saved, its checkpoints are removed; a finished run is not trained again."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lightbert.config import from_mapping
from lightbert.errors import InputError
from lightbert.files import sweep, write_atomic
from lightbert.train import checkpoint
from lightbert.train.distributed import World

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

RESULT = "result.json"


def finish(out: Path, result: Mapping[str, Any], *, keep_checkpoints: bool) -> None:
    """Save the result of a run whose models are saved, and remove its checkpoints unless they are to be kept."""
    write_atomic(out / RESULT, json.dumps(result, indent=2) + "\n")
    _clean(out, keep_checkpoints)


def read_result(out: Path, world: World, kind: type[T], *, keep_checkpoints: bool) -> T | None:
    """Read the result of a finished run, and print that it is finished; None if it is to be trained or resumed."""
    if not (out / RESULT).exists() or not (out / "final").exists():
        return None
    if world.is_main:
        _clean(out, keep_checkpoints)
        print(f"'{out}' is already trained; set out= to another folder to train again", file=sys.stderr)
    try:
        return from_mapping(kind, json.loads((out / RESULT).read_text(encoding="utf-8")))
    except (ValueError, RecursionError, InputError):
        raise InputError(f"'{out / RESULT}' is damaged; remove the folder to train again") from None


def _clean(out: Path, keep_checkpoints: bool) -> None:
    """Remove the checkpoints unless they are to be kept, and what a killed process left of them."""
    if not keep_checkpoints:
        checkpoint.remove_all(out / "checkpoints")
    sweep(out)
