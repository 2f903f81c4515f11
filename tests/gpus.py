"""Tests compute on the CPU, whatever the machine has; those marked `gpu` run apart, by `pytest -m gpu`.

CUDA decides once per process what it sees, so that the two kinds don't run together.
"""

import os
from importlib.util import find_spec
from typing import Any

import pytest
import torch


def selects_gpu(expression: str) -> bool:
    """Whether a mark expression (`pytest -m`) asks for the tests that need a GPU."""
    return "gpu" in expression and "not gpu" not in expression


def hide_gpus(expression: str) -> None:
    """Hide the GPUs from all tests, and from the processes they start, unless those that need one are asked for."""
    if not selects_gpu(expression):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def interpret_kernels() -> None:
    """Run Triton's kernels in its interpreter where no GPU is visible; chosen before Triton is imported."""
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")


def patch_interpreter() -> None:
    """Let loops of interpreted kernels end at run-time numbers with NumPy 2.5: Triton before 3.9 converts arrays [1].

    For the files that run kernels, so that the other tests don't import Triton.
    """
    if torch.cuda.is_available() or find_spec("triton") is None:
        return
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, *rest: Any) -> None:
        patch(tensor, *rest)
        tensor.__index__ = lambda self: int(self.handle.data.squeeze())

    interpreter._patch_lang_tensor = patched


def skip_gpu_tests(expression: str, items: list[pytest.Item]) -> None:
    """Skip the tests that need a GPU where there is none, or none to be seen."""
    if torch.cuda.is_available():
        return
    reason = "there is no GPU" if selects_gpu(expression) else "needs a GPU: run by `make test-gpu`"
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))
