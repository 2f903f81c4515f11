"""Checkpoints: folders of hashed files, written atomically; resuming reads the newest intact one."""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lightbert.errors import InputError, unknown
from lightbert.files import FolderKind, folder_atomic, moved_aside, read_tensors, sha256, write_atomic, write_tensors
from lightbert.train.distributed import World, fill
from lightbert.train.step import Position

FORMAT = 1
CHECKPOINT = FolderKind("a checkpoint", ("manifest.json", "facts.json", "*.safetensors"))


@dataclass(frozen=True)
class Checkpoint:
    """The state to resume from: named groups of tensors, and plain values such as step and elapsed seconds."""

    groups: dict[str, dict[str, Tensor]]
    facts: dict[str, Any]


def save(folder: Path, step: int, checkpoint: Checkpoint, keep: int) -> None:
    """Write ``folder/step-N`` atomically, then remove all but the newest ``keep``.

    Later steps are removed too: a run that saves an earlier step has skipped them as damaged, and they must not
    displace intact checkpoints.
    """
    try:
        with folder_atomic(folder / f"step-{step}", CHECKPOINT) as temporary:
            for name, tensors in checkpoint.groups.items():
                write_tensors(temporary / f"{name}.safetensors", tensors)
            write_atomic(temporary / "facts.json", json.dumps(checkpoint.facts, indent=2))
            files = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
            manifest = {"format": FORMAT, "step": step, "files": files}
            write_atomic(temporary / "manifest.json", json.dumps(manifest, indent=2))
    except OSError as error:
        previous = "the previous one is intact" if _list(folder) else "there is none yet"
        raise InputError(
            f"can't write checkpoint step-{step} to '{folder}' ({error.strerror}); {previous}: "
            "free disk space or set out= to another folder, and run the same command again"
        ) from error
    earlier = [path for path in _list(folder) if _step(path) <= step]
    _remove({*_list(folder)} - {*earlier[:keep]})


def exists(folder: Path) -> bool:
    """Return whether the folder has a checkpoint, intact or not."""
    return any(map(CHECKPOINT.is_ours, _list(folder)))


def newest_facts(folder: Path) -> dict[str, Any]:
    """Return the position in the newest checkpoint, whose tensors are not read; empty without a checkpoint."""
    for path in _list(folder):
        with suppress(InputError):
            return _json(path / "facts.json")
    return {}


def remove_all(folder: Path) -> None:
    """Remove the checkpoints of a run, and their folder if it holds nothing else."""
    if folder.is_dir() and all(_is_step(path) and CHECKPOINT.is_ours(path) for path in folder.iterdir()):
        with moved_aside(folder) as renamed:
            shutil.rmtree(renamed)
    else:
        _remove(_list(folder))


def _remove(folders: Iterable[Path]) -> None:
    for path in folders:
        if CHECKPOINT.is_ours(path):
            shutil.rmtree(path)


def load_newest(folder: Path) -> Checkpoint | None:
    """Read the newest intact checkpoint, or return None if the folder has none; skip damaged ones with a warning."""
    problems = []
    for path in _list(folder):
        try:
            return _read(path)
        except InputError as error:
            problems.append(str(error))
            print(f"warning: skipped a damaged checkpoint: {error}", file=sys.stderr)
    if problems:
        raise InputError(f"all checkpoints in '{folder}' are damaged ({problems[0]}); remove the folder to start over")
    return None


def _list(folder: Path) -> list[Path]:
    """List the checkpoints of a run, newest first."""
    return sorted(filter(_is_step, folder.glob("step-*")), key=_step, reverse=True)


def _is_step(path: Path) -> bool:
    return path.name.startswith("step-") and path.name.removeprefix("step-").isdecimal()


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _read(path: Path) -> Checkpoint:
    manifest = _json(path / "manifest.json")
    files = manifest.get("files")
    if manifest != {"format": FORMAT, "step": _step(path), "files": files} or not isinstance(files, dict):
        raise InputError(f"'{path / 'manifest.json'}' is damaged")
    for name, digest in files.items():
        if not (path / name).is_file() or sha256(path / name) != digest:
            raise InputError(f"'{path / name}' is missing or damaged")
    if extra := {file.name for file in path.iterdir()} - files.keys() - {"manifest.json"}:
        raise InputError(f"'{path / min(extra)}' is not in the manifest")
    groups = {
        name.removesuffix(".safetensors"): read_tensors(path / name) for name in files if name.endswith(".safetensors")
    }
    return Checkpoint(groups, _json(path / "facts.json"))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is missing or damaged") from error
    if not isinstance(content, dict):
        raise InputError(f"'{path}' is damaged")
    return content


def restore(targets: dict[str, Tensor], tensors: dict[str, Tensor], what: str) -> None:
    """Copy checkpoint tensors into a run's tensors; names and shapes must match exactly."""
    differing = sorted(targets.keys() ^ tensors.keys())
    if differing:
        raise InputError(f"the checkpoint's {what} must match this recipe; '{differing[0]}' is in only one of them")
    for name, target in targets.items():
        if target.shape != tensors[name].shape:
            want, have = list(target.shape), list(tensors[name].shape)
            raise InputError(
                f"the checkpoint's {what} must match this recipe; '{name}' has shape {have}, expected {want}"
            )
        fill(target, tensors[name])


def rank_key(name: str, value: float) -> float:
    """Return a sort key for a metric's value, larger for the better; losses and errors are negated, NaN is worst."""
    if isnan(value):
        return -inf
    return -value if name.endswith(("loss", "mse")) else value


class BestWeights:
    """Keep a copy of the weights that are best by the held-out metric ``name``; "" = keep none.

    The best value and its step are stored in the position; the weights are stored in every checkpoint.
    """

    def __init__(self, name: str, model: nn.Module, world: World) -> None:
        self.name, self.model, self.world = name, model, world
        self.weights: dict[str, Tensor] = {}

    def update(self, numbers: Mapping[str, float], at: Position) -> None:
        """Copy the weights if the metric improved; a tie keeps the earlier copy, and NaN is never the best."""
        if not self.name or at.best_step == at.step:
            return
        if self.world.is_main and self.name not in numbers:
            raise unknown("held-out metric", self.name, numbers)
        value = self.world.broadcast(numbers.get(self.name, 0.0))
        if isnan(value):
            return
        if at.best_step < 0 or rank_key(self.name, value) > rank_key(self.name, at.best):
            at.best, at.best_step = value, at.step
            self.weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Load the best weights from a checkpoint."""
        self.weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        restore(self.weights, tensors, "best weights")

    def restore(self) -> bool:
        """Copy the best weights into the model; return whether there were any."""
        if self.weights:
            targets = {name: p.data for name, p in self.model.named_parameters()}
            restore(targets, self.weights, "best weights")
        return bool(self.weights)
