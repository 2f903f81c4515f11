"""Grouped linear map in plain PyTorch: one batched matmul over the groups."""

import torch
from torch import Tensor


def grouped_product(x: Tensor, weight: Tensor) -> Tensor:
    """See :func:`lightbert.ops.grouped_linear.grouped_product`."""
    blocks = x.unflatten(-1, (weight.shape[0], -1))  # [..., g, I]
    return torch.einsum("...gi,gio->...go", blocks, weight).flatten(-2)
