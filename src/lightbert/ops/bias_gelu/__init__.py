"""Bias and GELU: what follows the first matmul of a feed-forward."""

from torch import Tensor

from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.bias_gelu import reference


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Apply GELU, in its erf form, to x [..., D] + bias [D]."""
    if has_kernel(x):
        from lightbert.ops.bias_gelu import operator

        out: Tensor = operator.bias_gelu(x, bias)
        return out
    return reference.bias_gelu(x, bias)


def has_kernel(x: Tensor) -> bool:
    """Whether the kernel computes x, or what a linear layer makes of x."""
    return use_triton("bias_gelu", as_autocast(x), fits=True)
