"""Compare a kernel with its reference in fp64, on a GPU or in Triton's interpreter."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gradients import scattered
from torch import Tensor

from gpus import patch_interpreter
from lightbert.ops.backend import using

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# A GPU is only visible to runs that select the GPU tests, which include the tests of the kernels.
MARKS = [pytest.mark.gpu] if DEVICE == "cuda" else []

# The interpreter truncates bf16 numbers, a GPU rounds them.
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16

Op = Callable[..., Tensor]

patch_interpreter()


def by_kernel(op: Op) -> Op:
    """The op by its kernel."""

    def call(**inputs: Any) -> Tensor:
        with using("triton"):
            return op(**inputs)

    return call


def results(op: Op, inputs: dict[str, Tensor], dtype: torch.dtype, spread: bool, **fixed: object) -> list[Tensor]:
    """The output and every input's gradient, computed in one precision and returned in fp64 on the CPU."""
    leaves = {name: value.to(DEVICE, dtype, copy=True).requires_grad_() for name, value in inputs.items()}
    out = op(**{name: scattered(leaf) if spread else leaf for name, leaf in leaves.items()}, **fixed)
    torch.manual_seed(1)
    # Rounded first, so that every precision gets the same numbers.
    direction = torch.randn(out.shape, dtype=torch.float64).bfloat16().to(DEVICE, out.dtype)
    out.backward(scattered(direction) if spread else direction)
    gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves.values()]
    return [result.detach().double().cpu() for result in (out, *gradients)]


def assert_exact(
    kernel: Op, reference: Op, inputs: dict[str, Tensor], *, spread: bool = False, **fixed: object
) -> None:
    """Check that a kernel is exact in fp32, up to rounding."""
    found = results(kernel, inputs, torch.float32, spread, **fixed)
    for result, expected in zip(found, results(reference, inputs, torch.float64, spread, **fixed), strict=True):
        torch.testing.assert_close(result, expected, rtol=2e-5, atol=2e-5)


def assert_no_coarser(kernel: Op, reference: Op, *draws: dict[str, Tensor], **fixed: object) -> None:
    """Check that the error of a kernel in half precision is at most twice that of the reference.

    Over several draws of the inputs if one has too few numbers to tell: then chance decides which error is larger.
    """
    rounded = [{name: value.to(HALF).double() for name, value in inputs.items()} for inputs in draws]
    exact, found, usual = (
        [results(op, inputs, dtype, False, **fixed) for inputs in rounded]
        for op, dtype in ((reference, torch.float64), (kernel, HALF), (reference, HALF))
    )
    for index, name in enumerate(("out", *draws[0])):
        error, allowed = (
            torch.stack([one[index] - other[index] for one, other in zip(each, exact, strict=True)]).norm()
            for each in (found, usual)
        )
        assert error <= 2 * allowed + 1e-9, f"{name}: {error:.3g} > 2 · {allowed:.3g}"
