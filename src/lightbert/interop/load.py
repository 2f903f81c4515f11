"""One door for every model on disk."""

from pathlib import Path

from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.models import PRESETS, folder
from lightbert.nn.encoder import Encoder


def load(path: str | Path) -> Encoder:
    """Read a model, ready to use, from a folder of ours or of Hugging Face's."""
    if not Path(path).exists() and str(path) in PRESETS:
        raise InputError(f"'{path}' is a preset without weights: build it, or give the folder of a trained model")
    if folder.read_config(Path(path)).get("model_type") == "lightbert":
        return folder.load(path)
    return huggingface.read(path)
