"""One door for every model on disk."""

from pathlib import Path

from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.interop.tf1 import read_tf1
from lightbert.models import PRESETS, Model, folder


def load(path: str | Path) -> Model:
    """Read a model, ready to use: a folder of ours or of Hugging Face's, or the prefix of a TensorFlow 1 checkpoint."""
    if is_tf1(path):
        return read_tf1(path)
    if not Path(path).exists() and str(path) in PRESETS:
        raise InputError(f"'{path}' is a preset without weights: build it, or give the folder of a trained model")
    if folder.read_config(Path(path)).get("model_type") == "lightbert":
        return folder.load(path)
    return huggingface.read(path)


def is_tf1(path: str | Path) -> bool:
    """Whether a path is what TensorFlow calls a checkpoint's: the files have it as the beginning of their names."""
    return Path(f"{path}.index").is_file()
