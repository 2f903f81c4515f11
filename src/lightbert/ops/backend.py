"""Which implementation of an op runs: the PyTorch reference, or a Triton kernel where one exists and fits.

The choice depends on the tensors of a call only, so it is in no config and in no checkpoint. Without Triton and on a
CPU every op is its reference; models are exported from a CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

Backend = Literal["torch", "triton"]

HAS_TRITON = find_spec("triton") is not None
_KERNEL_TYPES = (torch.bfloat16, torch.float16)
_override: Backend | None = None


@contextmanager
def using(backend: Backend) -> Iterator[None]:
    """Run ops by one backend, for tests and benchmarks; kernels run on a CPU in Triton's interpreter only."""
    global _override
    before, _override = _override, backend
    try:
        yield
    finally:
        _override = before


def use_triton(x: Tensor, *, fits: bool) -> bool:
    """Whether to run the kernel on x; ``fits`` says whether it takes tensors of these shapes at all."""
    if not fits or _override == "torch":
        return False
    if _override == "triton":
        return True
    return (
        HAS_TRITON and x.is_cuda and x.dtype in _KERNEL_TYPES and torch.cuda.get_device_capability(x.device) >= (8, 0)
    )


def as_autocast(x: Tensor) -> Tensor:
    """Round x as autocast rounds the inputs of a matmul or a convolution; x itself outside of autocast."""
    device = x.device.type
    if not torch.is_autocast_enabled(device) or x.dtype is not torch.float32:
        return x
    return x.to(torch.get_autocast_dtype(device))
