"""Load any model for texts by name: exported models without torch, all others with it."""

from pathlib import Path
from typing import TYPE_CHECKING

from lightbert.errors import InputError
from lightbert.tasks.predict.exported import ExportedModel, find_exported, read_exported

if TYPE_CHECKING:
    from lightbert.tasks.predict.text_model import TextModel


def load(name: str | Path) -> "TextModel | ExportedModel":
    """Load a model, ready to use.

    name: a model folder, ours or Hugging Face's; the name of a bundled model; ``org/name`` or ``org/name@revision`` for
    the Hugging Face Hub; the path prefix of a TensorFlow 1 checkpoint (docs/models.md); or a file that `lightbert
    export` wrote, or its folder (docs/deploy.md); a ``model.onnx`` is loaded without torch.
    """
    exported = find_exported(name)
    if exported is not None:
        return read_exported(exported)
    from lightbert.tasks.predict.text_model import load as load_model

    return load_model(name)


def load_on(name: str | Path, device: str) -> "TextModel | ExportedModel":
    """Load a model and move it to a device: auto, cpu or cuda. An exported model runs on the CPU."""
    model = load(name)
    if isinstance(model, ExportedModel):
        if device not in ("auto", "cpu"):
            raise InputError(f"device must be auto or cpu with an exported model, got {device!r}")
        return model
    from lightbert.train.distributed import resolve_device

    return model.to(resolve_device(device))
