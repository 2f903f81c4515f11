"""The narrow feed-forward in plain PyTorch."""

import torch.nn.functional as F
from torch import Tensor


def relu_feedforward(
    x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, scale: Tensor, shift: Tensor
) -> Tensor:
    """See :func:`lightbert.ops.relu_feedforward.relu_feedforward`."""
    return (x + F.linear(F.relu(F.linear(x, up, up_bias)), down, down_bias)) * scale + shift
