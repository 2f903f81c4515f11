"""Residual connection and layer norm in plain PyTorch."""

import torch.nn.functional as F
from torch import Tensor


def residual_norm(
    x: Tensor,
    change: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    dropout: float = 0.0,
    change_bias: Tensor | None = None,
) -> Tensor:
    """See :func:`lightbert.ops.residual_norm.residual_norm`."""
    if change_bias is not None:
        change = change + change_bias
    return F.layer_norm(x + F.dropout(change, dropout), weight.shape, weight, bias, eps)
