"""The folder of a run: its lock, its recipe and its result, never mixed with files that lightbert did not write."""

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from lightbert.config import from_mapping
from lightbert.data.staging import PREPARED
from lightbert.errors import InputError
from lightbert.files import is_empty, locked, make_folder, sweep, write_atomic
from lightbert.models.folder import MODEL_FOLDER
from lightbert.train import checkpoint
from lightbert.train.distributed import World

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


_MODELS = ("final", "generator")
_OUTPUTS = ("recipe.json", "metrics.jsonl", "result.json", "checkpoints", "tensorboard", *_MODELS)


def locked_run(out: Path, world: World) -> AbstractContextManager[None]:
    """Create the folder of a run and lock it, in the main process; the other processes wait until it is locked."""
    return _locked(out, world, check_run_folder)


def locked_grid(out: Path, world: World) -> AbstractContextManager[None]:
    """Create the folder of several runs and lock it, as `locked_run` does for each of them."""
    return _locked(out, world, check_grid_folder)


@contextmanager
def _locked(out: Path, world: World, check: Callable[[Path], None]) -> Iterator[None]:
    problem = None
    created = [path for path in (out, *out.parents) if not path.exists()]
    with ExitStack() as held:
        if world.is_main:
            try:
                make_folder(out)
                held.enter_context(locked(out, "is training in", "wait for it, stop it, or set out= to another folder"))
                check(out)
            except InputError as error:
                problem = error
        try:
            if world.any(problem is not None):
                raise problem or InputError(f"the main process can't use '{out}'; see its message")
            yield
        finally:
            held.close()
            # A run that failed before it wrote anything leaves no folder.
            for path in created if world.is_main else ():
                with suppress(OSError):
                    path.rmdir()


def check_run_folder(out: Path) -> None:
    """Check that everything a run would overwrite in its folder is from a run."""
    if not _is_run(out):
        _check_not_prepared(out)
        if output := next((name for name in _OUTPUTS if _has_content(out / name)), None):
            raise InputError(f"'{out / output}' exists and is not from a run; set out= to another folder")
    # The models of a finished run are not written again.
    for name in _MODELS if not (out / "result.json").exists() else ():
        MODEL_FOLDER.check(out / name)


def check_grid_folder(out: Path) -> None:
    """Check that everything several runs would overwrite in their common folder is from such runs."""
    are_runs = any(map(_is_run, (out / "runs").glob("*")))
    if not are_runs:
        _check_not_prepared(out)
        if output := next((name for name in ("runs.json", "final") if _has_content(out / name)), None):
            raise InputError(f"'{out / output}' exists and is not from the runs in 'runs'; set out= to another folder")
    MODEL_FOLDER.check(out / "final")


def _check_not_prepared(out: Path) -> None:
    if PREPARED.mark(out):
        raise InputError(f"out must not be a prepared folder, got '{out}'; set out= to another folder")


def check_outside(out: str, **inputs: str) -> None:
    """Check that the models that a run reads are not in the folder that it writes."""
    for key, value in inputs.items():
        if value and Path(value).exists() and Path(value).resolve().is_relative_to(Path(out).resolve()):
            raise InputError(
                f"{key} '{value}' is in the folder of the run, '{out}', which would replace it; "
                "set out= to another folder"
            )


def _has_content(path: Path) -> bool:
    return path.exists() and not is_empty(path) and path.stat().st_size > 0


def _is_run(out: Path) -> bool:
    recipe = _json(out / "recipe.json")
    with suppress(OSError, UnicodeDecodeError), (out / "metrics.jsonl").open(encoding="utf-8") as file:
        recipe |= _json_text(file.readline())
    return "seed" in recipe or {"kind", "step"} <= recipe.keys() or checkpoint.exists(out / "checkpoints")


def _json(path: Path) -> dict[str, Any]:
    with suppress(OSError, UnicodeDecodeError):
        return _json_text(path.read_text(encoding="utf-8"))
    return {}


def _json_text(text: str) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        content = json.loads(text)
        return content if isinstance(content, dict) else {}
    return {}


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
        recipe = json.loads(json.dumps(recipe))
        # All phases of a finished run have begun.
        later = None if (out / "result.json").exists() else max(0, finished if begun else finished - 1)
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


def _first(recipe: dict[str, Any], later: int | None) -> dict[str, Any]:
    """Return the recipe with the first ones of its later phases, or all of them."""
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
