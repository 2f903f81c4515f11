"""The tensors of a Hugging Face folder: one safetensors file, or several with an index."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightbert.errors import InputError
from lightbert.files import read_tensors

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
# The first TensorFlow checkpoints named the parameters of a norm by their Greek letters.
_GREEK = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def read_weights(folder: Path, body: str) -> dict[str, Tensor]:
    """All tensors in fp32, without the name that head classes put before the body's ("bert.", "convbert.", …)."""
    tensors: dict[str, Tensor] = {}
    for file in _files(folder):
        tensors |= read_tensors(file)
    return {_plain_name(name, body): _plain_type(tensor) for name, tensor in tensors.items()}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or the sentence that says why not."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no '{path.name}' in '{path.parent}'; give the folder of a model") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"'{path}' must hold a JSON object, not {content!r}")
    return content


def _files(folder: Path) -> list[Path]:
    if (folder / _SINGLE).exists():
        return [folder / _SINGLE]
    if (folder / _INDEX).exists():
        files = read_json(folder / _INDEX).get("weight_map")
        if not isinstance(files, dict):
            raise InputError(f"'{folder / _INDEX}' has no 'weight_map', so it names no files; copy it again")
        return [folder / str(name) for name in sorted(set(files.values()))]
    for pickle in sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt")):
        # It refuses, and says how to convert.
        read_tensors(pickle)
    raise InputError(f"there is no '{_SINGLE}' in '{folder}'; only safetensors are read")


def _plain_name(name: str, body: str) -> str:
    for greek, plain in _GREEK.items():
        name = name.replace(greek, plain)
    return name.removeprefix(f"{body}.")


def _plain_type(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float32) if tensor.is_floating_point() else tensor
