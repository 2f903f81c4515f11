"""Bias and GELU, alone or with a matmul: what follows the first matmul of a feed-forward."""

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


def gelu_linear(x: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """Apply GELU to x [..., D] + bias [D], then a linear layer without bias, weight [E, D].

    The kernel doesn't keep the activations, the largest tensors of a block: the backward pass computes them again.
    """
    if has_kernel(x):
        from lightbert.ops.bias_gelu import operator

        out: Tensor = operator.gelu_linear(x, bias, weight.to(x.dtype))
        return out
    return reference.gelu_linear(x, bias, weight)


def gelu_score(x: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """Apply GELU to x [..., D] + bias [D], then a linear layer with one output and no bias, weight [D] -> [...].

    The kernel reads x once in either pass, writes no activations, and returns fp32.
    """
    if has_kernel(x):
        from lightbert.ops.bias_gelu import operator

        out: Tensor = operator.gelu_score(x, bias, weight)
        return out
    return reference.gelu_score(x, bias, weight)


def has_kernel(x: Tensor) -> bool:
    """Whether the kernel computes x, or what a linear layer makes of x."""
    return use_triton("bias_gelu", as_autocast(x), fits=True)
