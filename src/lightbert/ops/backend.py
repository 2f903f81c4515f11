"""Which implementation of an op runs: the PyTorch reference, or a Triton kernel where one exists and fits.

The choice depends on the tensors of a call, and on the ops whose kernels are enabled in this process: all, unless the
environment variable LIGHTBERT_KERNELS selects some. It is in no config and in no checkpoint. Without Triton and on a
CPU every op is its reference; models are exported from a CPU.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from lightbert.errors import unknown

Backend = Literal["torch", "triton"]

HAS_TRITON = find_spec("triton") is not None
KERNELS = (
    "bias_gelu",
    "cross_entropy",
    "depthwise",
    "dynamic_conv",
    "linear_cross_entropy",
    "relative_attention",
    "relu_feedforward",
    "residual_norm",
    "sampling",
)
"""The ops with a kernel that can be disabled."""
_override: Backend | None = None


def selected(selection: str, kind: str = "selection of kernels") -> tuple[str, ...]:
    """The ops of a selection: "all", "none", or names of ops, separated by commas; "-name" removes one.

    "all,-bias_gelu" and "none,residual_norm" are selections, too. `kind` names it in errors.
    """
    groups = {"all": KERNELS, "none": ()}
    chosen: set[str] = set()
    for word in selection.split(","):
        name = word.strip().removeprefix("-")
        if name not in groups and name not in KERNELS:
            raise unknown(kind, name, [*groups, *KERNELS])
        ops = groups.get(name, (name,))
        chosen = chosen.difference(ops) if word.strip().startswith("-") else chosen.union(ops)
    return tuple(sorted(chosen))


_VARIABLE = "LIGHTBERT_KERNELS"
_enabled = selected(os.environ.get(_VARIABLE) or "all", f"value of the environment variable {_VARIABLE}")


def enabled(op: str) -> bool:
    """Whether the kernel of an op may run."""
    return op in _enabled


@contextmanager
def enabling(selection: str) -> Iterator[None]:
    """Enable the kernels of a selection instead of those of LIGHTBERT_KERNELS, for benchmarks."""
    global _enabled
    before, _enabled = _enabled, selected(selection)
    try:
        yield
    finally:
        _enabled = before


@contextmanager
def using(backend: Backend) -> Iterator[None]:
    """Run ops by one backend, for tests and benchmarks; kernels run on a CPU in Triton's interpreter only."""
    global _override
    before, _override = _override, backend
    try:
        yield
    finally:
        _override = before


def use_triton(op: str, x: Tensor, *, fits: bool) -> bool:
    """Whether to run the kernel of an op on x; ``fits`` says whether it takes tensors of these shapes at all."""
    if not fits or _override is not None:
        return fits and _override == "triton"
    return (
        HAS_TRITON
        and enabled(op)
        and x.is_cuda
        and x.dtype in (torch.bfloat16, torch.float16)
        and torch.cuda.get_device_capability(x.device) >= (8, 0)
    )


def on_gpu(x: Tensor) -> bool:
    """Whether to run an op that PyTorch's functions compute in another way on a GPU."""
    return x.is_cuda if _override is None else _override == "triton"


def as_autocast(x: Tensor) -> Tensor:
    """Round x as autocast rounds the inputs of a matmul or a convolution; x itself outside of autocast."""
    device = x.device.type
    if not torch.is_autocast_enabled(device) or x.dtype is not torch.float32:
        return x
    return x.to(torch.get_autocast_dtype(device))
