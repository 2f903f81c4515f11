"""The folder of a run: its lock, its recipe and its result, never mixed with files that lightbert did not write."""

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
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


def check_run_folder(out: Path) -> None:
    """Check that everything a run would overwrite in its folder is from a run."""
    _check_ours(out, _OUTPUTS, _is_run(out), "a run")
    # The models of a finished run are not written again.
    for name in _MODELS if not (out / "result.json").exists() else ():
        MODEL_FOLDER.check(out / name)


def check_grid_folder(out: Path) -> None:
    """Check that everything several runs would overwrite in their common folder is from such runs."""
    _check_ours(out, ("runs.json", "final"), any(map(_is_run, (out / "runs").glob("*"))), "the runs in 'runs'")
    MODEL_FOLDER.check(out / "final")


def _check_ours(out: Path, outputs: Sequence[str], is_ours: bool, origin: str) -> None:
    if is_ours:
        return
    if PREPARED.mark(out):
        raise InputError(f"out must not be a prepared folder, got '{out}'; set out= to another folder")
    if output := next((name for name in outputs if _has_content(out / name)), None):
        raise InputError(f"'{out / output}' exists and is not from {origin}; set out= to another folder")


@contextmanager
def locked_run(out: Path, world: World, check: Callable[[Path], None] = check_run_folder) -> Iterator[None]:
    """Create and check the folder of one or more runs and lock it, in the main process; the others wait for it."""
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
    recipe = _json(out / "recipe.json", whole=True) | _json(out / "metrics.jsonl")
    return "seed" in recipe or {"kind", "step"} <= recipe.keys() or checkpoint.exists(out / "checkpoints")


def _json(path: Path, *, whole: bool = False) -> dict[str, Any]:
    """Return the JSON object in a file, or in its first line; empty if there is none."""
    with suppress(OSError, ValueError, RecursionError), path.open(encoding="utf-8") as file:
        content = json.loads(file.read() if whole else file.readline())
        return content if isinstance(content, dict) else {}
    return {}


RESULT = "result.json"
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
) -> None:
    """Save the resolved recipe; if the folder already holds a run, check first that the recipes match.

    A finished run whose checkpoints were kept goes on with more steps or epochs.
    data_content: a hash of the training data of the current phase, which must not change while a run is interrupted.
    """
    before, goes_on = load_recipe(out), ""
    if before is not None:
        recipe = json.loads(json.dumps(recipe))
        facts = checkpoint.newest_facts(out / "checkpoints")
        # Only in pre-training may phases have data of their own, and change before they begin.
        finished = int(facts.get("phase", 0)) if "phases" in recipe else 0
        goes_on = _longer(recipe, before, facts, out) if recipe.get("phases") == [] else ""
        # All phases of a finished run have begun.
        later = None if (out / RESULT).exists() else max(0, finished if facts.get("phase_step") else finished - 1)
        earlier = before | {goes_on: recipe[goes_on]} if goes_on else before
        check_recipe(_first(recipe, later), _first(earlier, later), out, may_change, defaults)
        # Runs of earlier versions have no hash.
        if (goes_on or not finished) and before.get(DATA_CONTENT, data_content) != data_content:
            raise InputError(
                f"the data of the run in '{out}' has changed since the run was started; restore the data, or set out= "
                "to another folder to train on the new data"
            )
        data_content = before.get(DATA_CONTENT, data_content)
    world.barrier()
    if world.is_main and (before is None or before.get("phases") != recipe.get("phases") or goes_on):
        make_folder(out)
        if goes_on:
            # Before the recipe is replaced, so that a killed process leaves a run that still goes on.
            (out / RESULT).unlink(missing_ok=True)
        write_atomic(out / "recipe.json", json.dumps(recipe | {DATA_CONTENT: data_content}, indent=2) + "\n")
    world.barrier()


def _longer(recipe: dict[str, Any], before: dict[str, Any], facts: dict[str, Any], out: Path) -> str:
    """Return the key, steps or epochs, by which a finished run of one phase is to go on; "" if it isn't."""
    key = next((key for key in ("steps", "epochs") if recipe[key] > before.get(key, 0)), "")
    ended = facts.get("phase") == 1
    if key and not ended and (out / RESULT).exists():
        raise InputError(
            f"the run in '{out}' is finished and its checkpoints are removed, so that it can't go on with {key}="
            f"{recipe[key]}; train its model further with model={out / 'final'} and another out=, or keep the "
            "checkpoints of the next run with keep_checkpoints=true"
        )
    return key if ended and (key == "epochs" or recipe["steps"] > facts.get("step", 0)) else ""


def _first(recipe: dict[str, Any], later: int | None) -> dict[str, Any]:
    """Return the recipe with the first ones of its later phases, or all of them."""
    return recipe | {"phases": recipe["phases"][:later]} if recipe.get("phases") else recipe


def load_recipe(out: Path) -> dict[str, Any] | None:
    """Load the recipe of the run in a folder; None if the folder has neither checkpoints nor a final model."""
    path = out / "recipe.json"
    if not path.exists() or not ((out / "final").exists() or any((out / "checkpoints").glob("step-*"))):
        return None
    before = _json(path, whole=True)
    if not before:
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
