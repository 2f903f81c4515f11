"""Finds operations that make the host wait for the GPU, which a CUDA graph can't contain."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

_MESSAGE = "called a synchronizing CUDA operation"


@contextmanager
def recorded_waits() -> Iterator[list[str]]:
    """Collect where PyTorch waits for the GPU, such as "muon.py:51"; the list is filled at the end of the context.

    The operations run as usual.
    """
    found: list[str] = []
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode(before)
    for each in caught:
        if _MESSAGE in str(each.message):
            found.append(f"{Path(each.filename).name}:{each.lineno}")
        elif "Synchronization debug mode" not in str(each.message):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
