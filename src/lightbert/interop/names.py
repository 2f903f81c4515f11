"""Find a model by name: the same rule for every command, every recipe and Python.

A name is looked up in this order:

1. A preset or a bundled model. To use a folder of the same name, write it as a path: ``./convbert-small``.
2. A path on disk: a model folder, ours or Hugging Face's, or the prefix of a TensorFlow 1 checkpoint.
3. ``org/name`` or ``org/name@revision``: a model on the Hugging Face Hub, unless ``org`` is a local folder.
"""

import difflib
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from lightbert import bundled
from lightbert.errors import InputError, model_not_found, unknown
from lightbert.files import check_name
from lightbert.interop.hub import download
from lightbert.models import PRESETS

_HUB_ID = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>\S+))?", re.ASCII)


# Names that transformers accepts without their organization.
_BERT_ON_HUB = re.compile(r"bert-(base|large)-\w*-?(un)?cased(-\S+)?")


@dataclass(frozen=True)
class Preset:
    """A config by name, without weights."""

    name: str


@dataclass(frozen=True)
class ModelFolder:
    """A folder with config.json, weights and optionally a tokenizer. `name` is the name that the user gave."""

    path: Path
    name: str


@dataclass(frozen=True)
class Tf1Checkpoint:
    """A TensorFlow 1 checkpoint; its files begin with `prefix`."""

    prefix: Path


FoundModel = Preset | ModelFolder | Tf1Checkpoint


def find(name: str | Path, *, pickled: bool = False) -> FoundModel:
    """Find a model by name; download it if it is on the Hub.

    pickled: also download pickled weights if there are no safetensors.
    """
    check_name(name)
    text, path = str(name), Path(name)
    if not isinstance(name, Path) and (text in PRESETS or text in bundled.NAMES):
        kind = "preset" if text in PRESETS else "bundled model"
        if path.exists():
            warnings.warn(f"'{text}' is the {kind}; use './{text}' for the folder of that name", stacklevel=2)
        return Preset(text) if text in PRESETS else ModelFolder(bundled.folder_of(text), text)
    if Path(f"{text}.index").is_file():
        return Tf1Checkpoint(path)
    if text and path.exists():
        return ModelFolder(path, text)
    on_hub = None if isinstance(name, Path) else _HUB_ID.fullmatch(text)
    if on_hub and not path.parent.exists():
        return ModelFolder(download(on_hub["repository"], on_hub["revision"], pickled=pickled), text)
    raise _not_found(text)


def generator_of(found: FoundModel) -> ModelFolder | None:
    """Return the generator that belongs to a model: in its folder, as bundled models have it, or next to it."""
    if not isinstance(found, ModelFolder):
        return None
    inside, beside = found.path / "generator", found.path.resolve().parent / "generator"
    if (inside / "config.json").is_file():
        return ModelFolder(inside, f"{found.name}/generator")
    return ModelFolder(beside, str(beside)) if (beside / "config.json").is_file() else None


def _not_found(name: str) -> InputError:
    """Return an error that suggests the nearest name, or lists what a name can be."""
    if _BERT_ON_HUB.fullmatch(name):
        return InputError(f"model '{name}' not found; for the model on the Hugging Face Hub, write google-bert/{name}")
    nearest = difflib.get_close_matches(name, [*PRESETS, *bundled.NAMES], n=1)
    if nearest and Path(name).name == name:
        return unknown("preset", name, nearest)
    return model_not_found(name)
