"""One door for every model: by its name, with or without its weights."""

from pathlib import Path

from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.interop.names import FoundModel, ModelFolder, Preset, find
from lightbert.interop.tf1 import read_tf1
from lightbert.models import Model, build, folder


def load(name: str | Path, *, pickled: bool = False) -> Model:
    """Read a model, ready to use: what a name can be, `lightbert.interop.names` says.

    pickled: read pickled weights where a Hugging Face folder has no others. Only `lightbert convert` does.
    """
    return read(find(name, pickled=pickled), pickled=pickled)


def read(found: FoundModel, *, pickled: bool = False) -> Model:
    """Read what `find` found."""
    match found:
        case Preset():
            raise InputError(
                f"'{found.name}' is a preset without weights: build it, or give the folder of a trained model"
            )
        case ModelFolder() if _is_ours(found):
            return folder.load(found.path)
        case ModelFolder():
            return huggingface.read(found.path, pickled=pickled, name=found.name)
    return read_tf1(found.prefix)


def describe(found: FoundModel) -> Model:
    """A model's config and heads. It has weights only where nothing less than reading them tells its heads."""
    match found:
        case Preset():
            return build(found.name, device="meta")
        case ModelFolder() if _is_ours(found):
            return folder.from_description(folder.read_config(found.path), found.path)
    return read(found)


def _is_ours(found: ModelFolder) -> bool:
    return folder.read_config(found.path).get("model_type") == "lightbert"
