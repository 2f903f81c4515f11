"""Residual connection and layer norm: layer_norm(x + dropout(change + change_bias))."""

import torch
from torch import Tensor

from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.residual_norm import reference


def residual_norm(
    x: Tensor,
    change: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    dropout: float = 0.0,
    change_bias: Tensor | None = None,
) -> Tensor:
    """Add ``change`` to x, both [..., D], and normalize the sum over its channels; weight and bias [D].

    dropout: the probability, below 1, with which an element of the change is replaced by zero.
    change_bias [D]: the bias of the linear layer whose matmul computed the change; the kernel adds it in float32, and
    sums its gradient over all tokens in the same backward pass.
    The reference returns what autocast makes of it, float32. The kernel returns the dtype of ``change``, the half
    precision that every layer rounds its input to anyway, and computes in float32.
    """
    if has_kernel(x, change):
        from lightbert.ops.residual_norm import operator

        seed = torch.randint(2**31, (1,), device=x.device) if dropout > 0 else None
        out: Tensor = operator.residual_norm(x, change, weight, bias, eps, seed, dropout, change_bias)[0]
        return out
    return reference.residual_norm(x, change, weight, bias, eps, dropout, change_bias)


def has_kernel(x: Tensor, change: Tensor) -> bool:
    """Whether the kernel computes these tensors."""
    half = as_autocast(x)
    return use_triton("residual_norm", half, fits=half.dtype is change.dtype and x.shape[-1] <= 4096)
