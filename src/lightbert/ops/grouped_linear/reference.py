"""Grouped linear map in plain PyTorch: one batched matmul over the groups."""

import torch
from torch import Tensor

from lightbert.ops.backend import as_autocast


def grouped_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """See :func:`lightbert.ops.grouped_linear.grouped_linear`."""
    blocks = x.unflatten(-1, (weight.shape[0], -1))  # [..., g, I]
    mapped = torch.einsum("...gi,gio->...go", blocks, weight)
    # Under autocast a float32 bias would make the result float32; a linear layer rounds its bias as well.
    return mapped.flatten(-2) + as_autocast(bias)
