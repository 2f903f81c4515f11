"""Bias and GELU in plain PyTorch."""

import torch.nn.functional as F
from torch import Tensor


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """See :func:`lightbert.ops.bias_gelu.bias_gelu`."""
    return F.gelu(x + bias)


def gelu_linear(x: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """See :func:`lightbert.ops.bias_gelu.gelu_linear`."""
    return F.linear(F.gelu(x + bias), weight)


def gelu_score(x: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """See :func:`lightbert.ops.bias_gelu.gelu_score`."""
    return F.linear(F.gelu(x + bias), weight.unsqueeze(0)).squeeze(-1)
