"""The folder of a run: locked while it is written, and never mixed with files that lightbert did not write."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from lightbert.data.staging import PREPARED
from lightbert.errors import InputError
from lightbert.files import is_empty, locked, make_folder
from lightbert.models.owned import MODEL_FOLDER
from lightbert.train import checkpoint
from lightbert.train.distributed import World

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
    found = next((name for name in _OUTPUTS if _has_content(out / name)), None)
    if found is not None and not _is_run(out):
        raise InputError(f"'{out / found}' exists and is not from a run; set out= to another folder")
    # The models of a finished run are not written again.
    for name in _MODELS if not (out / "result.json").exists() else ():
        MODEL_FOLDER.check(out / name)


def check_grid_folder(out: Path) -> None:
    """Check that everything several runs would overwrite in their common folder is from such runs."""
    are_runs = any(map(_is_run, (out / "runs").glob("*")))
    if not are_runs:
        _check_not_prepared(out)
    found = next((name for name in ("runs.json", "final") if _has_content(out / name)), None)
    if found is not None and not are_runs:
        raise InputError(f"'{out / found}' exists and is not from the runs in 'runs'; set out= to another folder")
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
