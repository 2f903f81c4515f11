"""Read the tensors of a Hugging Face folder: one file of weights, or several with an index, safe or pickled.

Unpickling can execute arbitrary code, so only `lightbert convert` reads pickles (.bin, .pt); everything else reads
safetensors. `torch.load(weights_only=True)` only calls the constructors of tensors; its result is checked here.
"""

import shlex
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightbert.errors import InputError
from lightbert.files import read_tensors
from lightbert.models.folder import weight_files

MAX_BYTES = 32 * 2**30
"""The maximum size of a pickle."""
MAX_TENSORS = 100_000
# Tied weights share one storage, so the tensors of a file may be larger than the file, but not much.
_MAX_EXPANSION = 2

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
    return {
        _plain_name(key, body): tensor.float() if tensor.is_floating_point() else tensor
        for key, tensor in tensors.items()
    }


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
        names = ", ".join(path.name for path in files)
        raise InputError(f"'{folder}' must contain one file of weights, got {names}; name it '{_PICKLED}'")
    return files


def _plain_name(name: str, body: str) -> str:
    for greek, plain in _GREEK.items():
        name = name.replace(greek, plain)
    return name.removeprefix(f"{body}.")


def read_pickle(path: Path) -> dict[str, Tensor]:
    """Read a pickled state dict; anything other than tensors by name is an error."""
    if not path.is_file():
        raise InputError(f"'{path}' not found; copy the folder again")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise InputError(f"'{path}' must have at most {MAX_BYTES:,} bytes, got {size:,}")
    zipped = zipfile.is_zipfile(path)
    if zipped:
        _check_archive(path, size)
    try:
        with warnings.catch_warnings():
            # torch warns about old file formats; the content is checked below.
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    # A damaged file can raise almost any exception; a forbidden object raises an UnpicklingError.
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"'{path}' is damaged or contains more than tensors, so it is not loaded ({type(error).__name__}: {reason})"
        ) from None
    return _checked_tensors(content, path, size)


def _check_archive(path: Path, size: int) -> None:
    """Check that the entries of a zip file are not larger than the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"'{path}' is a damaged zip file ({error}); copy it again") from None
    if len(entries) > MAX_TENSORS:
        raise InputError(f"'{path}' must contain at most {MAX_TENSORS:,} tensors, got {len(entries):,} entries")
    if sum(entry.file_size for entry in entries) > size:
        raise InputError(f"'{path}' must not unpack to more than its size; torch.save never compresses")


def _checked_tensors(content: Any, path: Path, size: int) -> dict[str, Tensor]:
    """Check that the content is a flat dictionary of dense tensors no larger than the file, and return it."""
    if not isinstance(content, dict):
        raise InputError(f"'{path}' must contain a dictionary of tensors, got {type(content).__name__}")
    if len(content) > MAX_TENSORS:
        raise InputError(f"'{path}' must contain at most {MAX_TENSORS:,} tensors, got {len(content):,}")
    tensors: dict[str, Tensor] = {}
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise InputError(
                f"'{path}' must contain only tensors by name, got {type(value).__name__} as {name!r}; save "
                "model.state_dict() alone"
            )
        if value.layout is not torch.strided or value.is_quantized:
            raise InputError(f"'{name}' in '{path}' must be a dense tensor, got {value.layout}, {value.dtype}")
        tensors[name] = value.detach()
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if total > _MAX_EXPANSION * size:
        raise InputError(
            f"'{path}' must not contain tensors much larger than the file ({size:,} bytes), got {total:,} bytes"
        )
    return tensors
