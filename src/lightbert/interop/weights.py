"""Read the tensors of a Hugging Face folder: one file of weights, or several with an index."""

import json
import shlex
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightbert.errors import InputError
from lightbert.files import read_tensors, read_text
from lightbert.interop.pickled import read_pickle
from lightbert.models.folder import weight_files

_SAFE, _PICKLED = "model.safetensors", "pytorch_model.bin"
# Other files that a training writes next to the weights.
_TRAINING_STATE = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.bin", "scheduler.pt", "scaler.pt")
# Checkpoints converted from TensorFlow call the parameters of a norm gamma and beta.
_GREEK = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def read_weights(folder: Path, body: str, *, pickled: bool = False, name: str = "") -> dict[str, Tensor]:
    """Return all tensors in fp32, without the prefix of the body ("bert.", "convbert.", …).

    pickled: read pickled weights if there are no safetensors.
    name: the name of the model in messages.
    """
    tensors: dict[str, Tensor] = {}
    if files := weight_files(folder, _SAFE):
        for file in files:
            tensors |= read_tensors(file)
    else:
        for file in _pickles(folder, name or str(folder), pickled=pickled):
            tensors |= read_pickle(file)
    return {_plain_name(name, body): _plain_type(tensor) for name, tensor in tensors.items()}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        content = json.loads(read_text(path))
    except FileNotFoundError:
        raise InputError(f"'{path.name}' not found in '{path.parent}'; give the folder of a model") from None
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"'{path}' must contain a JSON object, got {content!r}")
    return content


def _pickles(folder: Path, name: str, *, pickled: bool) -> list[Path]:
    others = sorted(path for ending in ("bin", "pt") for path in folder.glob(f"*.{ending}"))
    files = weight_files(folder, _PICKLED) or [path for path in others if path.name not in _TRAINING_STATE]
    convert = f"lightbert convert {shlex.quote(name)} NEW_FOLDER --to lightbert"
    if not files:
        # Only safetensors were downloaded from the Hub.
        hint = "" if Path(name).exists() or pickled else f"; if its weights are pickled, run `{convert}`"
        raise InputError(f"'{_SAFE}' not found in '{name}'{hint}")
    if not pickled:
        raise InputError(
            f"'{files[0]}' is a pickle, which can execute code when loaded; convert it with `{convert}`, which "
            "reads tensors only"
        )
    if len(files) > 1 and not (folder / f"{_PICKLED}.index.json").exists():
        given = ", ".join(path.name for path in files)
        raise InputError(f"'{folder}' must contain one file of weights, got {given}; name it '{_PICKLED}'")
    return files


def _plain_name(name: str, body: str) -> str:
    for greek, plain in _GREEK.items():
        name = name.replace(greek, plain)
    return name.removeprefix(f"{body}.")


def _plain_type(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float32) if tensor.is_floating_point() else tensor
