"""Without a GPU the kernels run in Triton's interpreter, which has to be asked for before a kernel is defined."""

import os

import torch


def pytest_configure() -> None:
    """After GPUs are hidden, if they are."""
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
