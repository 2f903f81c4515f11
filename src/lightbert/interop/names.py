"""What a model's name means: one rule for every command, every recipe and Python.

In this order:

1. The name of a preset or of a bundled model is that model. A folder of the same name must be written as a path:
   ``./convbert-small``.
2. Anything else that exists on disk is that: a model folder, ours or Hugging Face's, or the common beginning of the
   files of a TensorFlow 1 checkpoint.
3. ``org/name`` or ``org/name@revision`` is a model on the Hugging Face Hub, unless ``org`` is a folder here.
"""

import difflib
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from lightbert.errors import InputError, unknown
from lightbert.interop.hub import download
from lightbert.models import PRESETS

BUNDLED = Path(__file__).parents[1] / "bundled"
"""Model folders that ship inside the package, by name."""

_HUB_ID = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>\S+))?", re.ASCII)


@dataclass(frozen=True)
class Preset:
    """A config by name, without weights."""

    name: str


@dataclass(frozen=True)
class ModelFolder:
    """A folder with config.json, weights and perhaps a tokenizer. `name` is what it was asked for by."""

    path: Path
    name: str


@dataclass(frozen=True)
class Tf1Checkpoint:
    """A TensorFlow 1 checkpoint; its files begin with `prefix`."""

    prefix: Path


FoundModel = Preset | ModelFolder | Tf1Checkpoint


def find(name: str | Path, *, pickled: bool = False) -> FoundModel:
    """Find the model of a name, downloading it if it is on the Hub.

    pickled: whether the caller can read pickled weights, so that they are worth downloading.
    """
    text, path = str(name), Path(name)
    if not isinstance(name, Path) and (text in PRESETS or text in bundled()):
        kind = "preset" if text in PRESETS else "bundled model"
        if path.exists():
            warnings.warn(f"'{text}' is the {kind}; write './{text}' for the folder of that name", stacklevel=2)
        return Preset(text) if text in PRESETS else ModelFolder(bundled()[text], text)
    if Path(f"{text}.index").is_file():
        return Tf1Checkpoint(path)
    if text and path.exists():
        return ModelFolder(path, text)
    on_hub = None if isinstance(name, Path) else _HUB_ID.fullmatch(text)
    if on_hub and not path.parent.exists():
        return ModelFolder(download(on_hub["repository"], on_hub["revision"], pickled=pickled), text)
    raise _not_found(text)


def bundled() -> dict[str, Path]:
    """The models that ship inside the package."""
    return {folder.parent.name: folder.parent for folder in sorted(BUNDLED.glob("*/config.json"))}


def _not_found(name: str) -> InputError:
    """The nearest preset or bundled model for a name that resembles one; else what a name can be."""
    nearest = difflib.get_close_matches(name, [*PRESETS, *bundled()], n=1)
    if nearest and Path(name).name == name:
        return unknown("preset", name, nearest)
    return InputError(
        f"there is no model folder '{name}'; give a folder with config.json, a preset's name, the prefix of a "
        "TensorFlow 1 checkpoint, or org/name for a model on the Hugging Face Hub"
    )
