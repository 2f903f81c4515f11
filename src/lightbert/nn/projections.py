"""Linear maps and depthwise convolutions that the mixers and feed-forwards are made of."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.distributions import Initial, Uniform
from lightbert.nn.mask import Mask
from lightbert.ops.depthwise import depthwise
from lightbert.ops.grouped_linear import grouped_linear


def project(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Apply several linear layers to one input; on a GPU as one matmul, while checkpoints keep their names apart."""
    if not x.is_cuda:
        return tuple(layer(x) for layer in layers)
    weight = torch.cat([layer.weight for layer in layers])
    bias = torch.cat([layer.bias for layer in layers])
    return torch.split(F.linear(x, weight, bias), [layer.out_features for layer in layers], dim=-1)


class GroupedLinear(nn.Module):
    """A linear map made of independent blocks of channels (ConvBERT Eq. 7)."""

    def __init__(self, inputs: int, outputs: int, groups: int) -> None:
        super().__init__()
        if inputs % groups or outputs % groups:
            raise InputError(f"{groups} groups divide neither or only one of the widths {inputs} and {outputs}")
        self.weight = nn.Parameter(torch.empty(groups, inputs // groups, outputs // groups))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return grouped_linear(x, self.weight, self.bias)


def linear(inputs: int, outputs: int, groups: int = 1) -> nn.Module:
    """A dense linear layer, or a grouped one when there is more than one group."""
    return nn.Linear(inputs, outputs) if groups == 1 else GroupedLinear(inputs, outputs, groups)


def odd(kernel: int) -> int:
    """The kernel itself, unless it is even: then no tap stands in its middle."""
    if kernel % 2 == 0:
        raise InputError(f"a convolution needs an odd kernel, got {kernel}: use {kernel + 1}")
    return kernel


class Depthwise(nn.Module):
    """A convolution over tokens with one fixed kernel per channel; padding and other texts read as zero."""

    def __init__(self, width: int, kernel: int, *, bias: bool) -> None:
        super().__init__()
        kernel = odd(kernel)
        self.weight = nn.Parameter(torch.empty(width, kernel))
        self.bias = nn.Parameter(torch.empty(width)) if bias else None

    def initial_weights(self) -> Initial:
        """PyTorch's default for a convolution of this size, as in the composite paper's code."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        return {name: Uniform(bound) for name, _ in self.named_parameters()}

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        return depthwise(mask.zero(x), self.weight, self.bias, mask.window(self.weight.shape[1]))


class HalfConvolved(nn.Module):
    """A projection whose first half of the heads reads a depthwise convolution, the second half the token itself.

    The convolutional queries, keys and values of the composite paper (§5, Table 3).
    """

    def __init__(self, width: int, outputs: int, kernel: int) -> None:
        super().__init__()
        if outputs % 2:
            raise InputError(f"half of {outputs} channels cannot be convolved: use an even number")
        self.convolution = Depthwise(width, kernel, bias=True)
        self.convolved = nn.Linear(width, outputs // 2)
        self.direct = nn.Linear(width, outputs // 2)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """[B, T, D] -> [B, T, outputs]."""
        return torch.cat([self.convolved(self.convolution(x, mask)), self.direct(x)], dim=-1)
