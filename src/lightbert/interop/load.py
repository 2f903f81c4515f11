"""Load any model by name, with or without its weights."""

from pathlib import Path

import torch

from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.interop.names import FoundModel, ModelFolder, Preset, find
from lightbert.interop.tf1 import read_tf1
from lightbert.models import Model, build, folder


def load(name: str | Path, *, pickled: bool = False) -> Model:
    """Load a model by name; see `lightbert.interop.names` for what a name can be.

    pickled: read pickled weights if a Hugging Face folder has no safetensors. Only `lightbert convert` sets it.
    """
    return read(find(name, pickled=pickled), pickled=pickled)


def read(found: FoundModel, *, pickled: bool = False) -> Model:
    """Load a model that `find` returned; weights stored in half precision become float32."""
    match found:
        case Preset():
            raise InputError(
                f"'{found.name}' is a preset without weights; use build, or give the folder of a trained model"
            )
        case ModelFolder() if _is_ours(found):
            model = folder.load(found.path)
            # Half precision saves space in files; computing in it is up to autocast, and slow on many CPUs.
            return model.float() if model.table.dtype in (torch.bfloat16, torch.float16) else model
        case ModelFolder():
            return huggingface.read(found.path, pickled=pickled, name=found.name)
    return read_tf1(found.prefix)


def describe(found: FoundModel) -> Model:
    """Return a model with its config and heads; the weights are read only if the heads can't be known otherwise."""
    match found:
        case Preset():
            return build(found.name, device="meta")
        case ModelFolder() if _is_ours(found):
            return folder.from_description(folder.read_config(found.path), found.path)
    return read(found)


def _is_ours(found: ModelFolder) -> bool:
    return folder.read_config(found.path).get("model_type") == "lightbert"
