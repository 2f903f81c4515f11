"""Loads and stores of tiles; a kernel that is compiled for ``even`` shapes has no masks."""

import triton
import triton.language as tl


@triton.jit
def load(source, place, within, even: tl.constexpr):
    """Numbers in fp32, zeros outside of the tensor; there is no outside if ``even``."""
    values = tl.load(source + place) if even else tl.load(source + place, mask=within, other=0.0)
    return values.to(tl.float32)


@triton.jit
def store(target, place, values, within, even: tl.constexpr):
    """Write numbers in the dtype of the target."""
    if even:
        tl.store(target + place, values.to(target.dtype.element_ty))
    else:
        tl.store(target + place, values.to(target.dtype.element_ty), mask=within)


@triton.jit
def load_operand(source, place, within, even: tl.constexpr):
    """As `load`, in the dtype of the source: for matmuls."""
    return tl.load(source + place) if even else tl.load(source + place, mask=within, other=0)
