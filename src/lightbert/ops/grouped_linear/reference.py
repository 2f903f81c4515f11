"""Grouped linear map in plain PyTorch: one batched matmul over the groups."""

import torch
from torch import Tensor


def grouped_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """See :func:`lightbert.ops.grouped_linear.grouped_linear`."""
    blocks = x.unflatten(-1, (weight.shape[0], -1))  # [..., g, I]
    mapped = torch.einsum("...gi,gio->...go", blocks, weight)
    return mapped.flatten(-2) + bias
