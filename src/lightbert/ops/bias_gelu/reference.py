"""Bias and GELU in plain PyTorch."""

import torch.nn.functional as F
from torch import Tensor


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """See :func:`lightbert.ops.bias_gelu.bias_gelu`."""
    return F.gelu(x + bias)
