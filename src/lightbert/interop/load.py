"""Find a model by name and load it: the same rule for every command, every recipe and Python.

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

import torch

from lightbert import bundled
from lightbert.errors import InputError, model_not_found, required, unknown
from lightbert.files import check_name
from lightbert.models import PRESETS, Model, build, folder

_HUB_ID = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>\S+))?", re.ASCII)
# Names that transformers accepts without their organization.
_BERT_ON_HUB = re.compile(r"bert-(base|large)-\w*-?(un)?cased(-\S+)?")

_FILES = (
    "config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    # sentence-transformers
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
)
_PICKLES = ("pytorch_model*.bin", "pytorch_model.bin.index.json")


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
    if _BERT_ON_HUB.fullmatch(text):
        raise InputError(f"model '{text}' not found; for the model on the Hugging Face Hub, write google-bert/{text}")
    nearest = difflib.get_close_matches(text, [*PRESETS, *bundled.NAMES], n=1)
    if nearest and path.name == text:
        raise unknown("preset", text, nearest)
    raise model_not_found(text)


def download(repository: str, revision: str | None = None, *, pickled: bool = False) -> Path:
    """Return the folder of a model in huggingface_hub's cache; download it if necessary.

    revision: a branch, tag or commit; None = the default branch.
    pickled: also download pickled weights if there are no safetensors.
    """
    failure = f"model folder '{repository}' not found, and downloading it from the Hugging Face Hub"
    with required(f"{failure} requires huggingface_hub", "lightbert[hf]"):
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
    try:
        path = Path(snapshot_download(repository, revision=revision, allow_patterns=list(_FILES)))
        if pickled and not any(path.glob("*.safetensors")):
            path = Path(snapshot_download(repository, revision=revision, allow_patterns=[*_FILES, *_PICKLES]))
        return path
    # huggingface_hub also raises the errors of its HTTP library.
    except Exception as error:
        match error:
            case GatedRepoError():
                reason = "access requires a login: run `hf auth login`"
            case RepositoryNotFoundError():
                reason = "no public model has that name"
            case RevisionNotFoundError():
                reason = f"it has no revision '{revision}'"
            case _:
                reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise InputError(f"{failure} failed: {reason}") from error


def load(name: str | Path, *, pickled: bool = False) -> Model:
    """Load a model by name.

    pickled: read pickled weights if a Hugging Face folder has no safetensors. Only `lightbert convert` sets it.
    """
    return read(find(name, pickled=pickled), pickled=pickled)


def read(source: FoundModel, *, pickled: bool = False) -> Model:
    """Load a model that `find` returned; weights stored in half precision become float32."""
    match source:
        case Preset():
            raise InputError(
                f"'{source.name}' is a preset without weights; use build, or give the folder of a trained model"
            )
        case ModelFolder() if _is_ours(source):
            model = folder.load(source.path)
            # Half precision saves space in files; computing in it is up to autocast, and slow on many CPUs.
            return model.float() if model.table.dtype in (torch.bfloat16, torch.float16) else model
        case ModelFolder():
            from lightbert.interop import huggingface

            return huggingface.read(source.path, pickled=pickled, name=source.name)
    from lightbert.interop.tf1 import read_tf1

    return read_tf1(source.prefix)


def describe(source: FoundModel) -> Model:
    """Return a model with its config and heads; the weights are read only if the heads can't be known otherwise."""
    match source:
        case Preset():
            return build(source.name, device="meta")
        case ModelFolder() if _is_ours(source):
            return folder.from_description(folder.read_config(source.path), source.path)
    return read(source)


def _is_ours(source: ModelFolder) -> bool:
    return folder.read_config(source.path).get("model_type") == "lightbert"


def generator_of(source: FoundModel) -> ModelFolder | None:
    """Return the generator that belongs to a model: in its folder, as bundled models have it, or next to it."""
    if not isinstance(source, ModelFolder):
        return None
    inside, sibling = source.path / "generator", source.path.resolve().parent / "generator"
    if (inside / "config.json").is_file():
        return ModelFolder(inside, f"{source.name}/generator")
    return ModelFolder(sibling, str(sibling)) if (sibling / "config.json").is_file() else None
