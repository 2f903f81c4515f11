"""Pickled weights (.bin, .pt), read by torch's restricted loader: tensors only, no code, bounded size.

Unpickling runs whatever a file says, so only `lightbert convert` calls this, and everything else reads safetensors.
`torch.load(weights_only=True)` calls nothing but the constructors of tensors; what it returns is checked here.
"""

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightbert.errors import InputError

MAX_BYTES = 32 * 2**30
"""The largest file that is opened."""
MAX_TENSORS = 100_000
# Tied weights are two tensors with one storage: a file may hold more than its size, but not much more.
_MAX_EXPANSION = 2


def read_pickle(path: Path) -> dict[str, Tensor]:
    """The tensors of a pickled state dict, by name; anything else in the file is an error."""
    if not path.is_file():
        raise InputError(f"there is no file '{path}'; copy the folder again")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise InputError(f"'{path}' must have at most {MAX_BYTES:,} bytes, got {size:,}")
    zipped = zipfile.is_zipfile(path)
    if zipped:
        _check_archive(path, size)
    try:
        with warnings.catch_warnings():
            # About ways of saving a file that are long gone: what matters is checked below.
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    # A damaged file can raise almost anything, and what is forbidden raises an UnpicklingError.
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"'{path}' is damaged or holds more than tensors, so it is not opened ({type(error).__name__}: {reason})"
        ) from None
    return _checked_tensors(content, path, size)


def _check_archive(path: Path, size: int) -> None:
    """Make sure that a zip file does not unpack to more than itself."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"'{path}' is a damaged zip file ({error}); copy it again") from None
    if len(entries) > MAX_TENSORS:
        raise InputError(f"'{path}' must hold at most {MAX_TENSORS:,} tensors, got {len(entries):,} entries")
    if sum(entry.file_size for entry in entries) > size:
        raise InputError(f"'{path}' unpacks to more than its size, which no file that torch.save wrote does")


def _checked_tensors(content: Any, path: Path, size: int) -> dict[str, Tensor]:
    """The content, if it is a flat dictionary of plain tensors that are not larger than their file."""
    if not isinstance(content, dict):
        raise InputError(f"'{path}' must hold a dictionary of tensors, got {type(content).__name__}")
    if len(content) > MAX_TENSORS:
        raise InputError(f"'{path}' must hold at most {MAX_TENSORS:,} tensors, got {len(content):,}")
    tensors: dict[str, Tensor] = {}
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise InputError(
                f"'{path}' must hold tensors by name and nothing else, got {type(value).__name__} as {name!r}; save "
                "model.state_dict() alone"
            )
        if value.layout is not torch.strided or value.is_quantized:
            raise InputError(f"'{name}' in '{path}' must be a dense tensor, got {value.layout}, {value.dtype}")
        tensors[name] = value.detach()
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if total > _MAX_EXPANSION * size:
        raise InputError(f"'{path}' has {size:,} bytes, but its tensors would take {total:,}")
    return tensors
