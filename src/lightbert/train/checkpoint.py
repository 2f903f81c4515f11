"""Checkpoints: folders of hashed files that appear by rename, newest whole one first."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from lightbert.errors import InputError
from lightbert.files import folder_atomic, read_tensors, sha256, write_atomic, write_tensors
from lightbert.train.sharding import fill

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """What is needed to go on: named groups of tensors, and plain facts such as step and elapsed seconds."""

    groups: dict[str, dict[str, Tensor]]
    facts: dict[str, Any]


def save(folder: Path, step: int, checkpoint: Checkpoint, keep: int) -> None:
    """Write ``folder/step-N`` whole or not at all, then remove all but the newest ``keep``.

    Later ones go too: a run that saves an earlier step has passed over them as damaged, and they must not crowd out
    those that are whole.
    """
    try:
        with folder_atomic(folder / f"step-{step}") as temporary:
            for name, tensors in checkpoint.groups.items():
                write_tensors(temporary / f"{name}.safetensors", tensors)
            write_atomic(temporary / "facts.json", json.dumps(checkpoint.facts, indent=2))
            files = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
            manifest = {"format": FORMAT, "step": step, "files": files}
            write_atomic(temporary / "manifest.json", json.dumps(manifest, indent=2))
    except OSError as error:
        raise InputError(
            f"checkpoint step-{step} cannot be written to '{folder}' ({error.strerror}); the one before it is whole: "
            "make room or set out= to another folder, and run the same command again"
        ) from error
    earlier = [path for path in _found(folder) if _number(path) <= step]
    for useless in {*_found(folder)} - {*earlier[:keep]}:
        shutil.rmtree(useless)


def remove_partial(folder: Path) -> None:
    """Remove what a killed process left half-written."""
    for remains in (*folder.glob(".*.tmp-*"), *folder.glob(".*.old-*")):
        if remains.is_dir():
            shutil.rmtree(remains, ignore_errors=True)
        else:
            remains.unlink(missing_ok=True)


def newest(folder: Path) -> Checkpoint | None:
    """Read the newest whole checkpoint; None when there is none at all. Damaged ones are passed over aloud."""
    found = _found(folder)
    problems = []
    for path in found:
        try:
            return _read(path)
        except InputError as error:
            problems.append(str(error))
            print(f"passing over a damaged checkpoint: {error}", file=sys.stderr)
    if found:
        raise InputError(f"no checkpoint in '{folder}' is whole ({problems[0]}); remove the folder to start again")
    return None


def _found(folder: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    found = [path for path in folder.glob("step-*") if path.name.removeprefix("step-").isdecimal()]
    return sorted(found, key=_number, reverse=True)


def _number(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _read(path: Path) -> Checkpoint:
    manifest = _json(path / "manifest.json")
    files = manifest.get("files")
    if manifest.get("format") != FORMAT or not isinstance(files, dict) or manifest.get("step") != _number(path):
        raise InputError(f"'{path / 'manifest.json'}' is damaged")
    for name, digest in files.items():
        if not (path / name).is_file() or sha256(path / name) != digest:
            raise InputError(f"'{path / name}' is missing or damaged")
    groups = {
        name.removesuffix(".safetensors"): read_tensors(path / name) for name in files if name.endswith(".safetensors")
    }
    return Checkpoint(groups, _json(path / "facts.json"))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' is missing or damaged") from error
    if not isinstance(content, dict):
        raise InputError(f"'{path}' is damaged")
    return content


def restore(targets: dict[str, Tensor], tensors: dict[str, Tensor], what: str) -> None:
    """Copy tensors into those that a run holds; names and shapes must agree exactly."""
    differing = sorted(targets.keys() ^ tensors.keys())
    if differing:
        raise InputError(f"the checkpoint's {what} does not fit this recipe: '{differing[0]}' is only on one side")
    for name, target in targets.items():
        if target.shape != tensors[name].shape:
            want, have = list(target.shape), list(tensors[name].shape)
            raise InputError(f"the checkpoint's {what} '{name}' is {have}, this recipe makes it {want}")
        fill(target, tensors[name])
