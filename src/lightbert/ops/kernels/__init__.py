"""Triton kernels, one file per op, with the memory and the grids of their launches."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Import a file of kernels when it is first used: importing Triton takes a while, and it may be missing."""
    if name.startswith("_"):
        raise AttributeError(name)
    return import_module(f"{__name__}.{name}")
