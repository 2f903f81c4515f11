"""The linear layers and depthwise convolutions of mixers and feed-forwards."""

import math
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.distributions import Initial, Uniform
from lightbert.nn.mask import Mask
from lightbert.nn.plain_layers import is_plain
from lightbert.ops.bias_gelu import bias_gelu, gelu_linear, gelu_score, has_kernel
from lightbert.ops.depthwise import depthwise
from lightbert.ops.grouped_linear import grouped_linear, grouped_product

_LARGE = 2**27
"""Elements, 256 MiB in half precision: from this size on, activations are computed again in the backward pass. In small
batches, where memory is not scarce, that would only take time."""


def project(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Apply several linear layers to one input; on a GPU as one matmul if `can_fuse` allows it.

    The layers keep their own parameters and names either way.
    """
    return project_fused(x, *layers) if x.is_cuda and can_fuse(*layers) else tuple(layer(x) for layer in layers)


def project_fused(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Apply several linear layers to one input as one matmul with their concatenated weights."""
    return project_weights(x, *((layer.weight, layer.bias) for layer in layers))


def project_weights(x: Tensor, *layers: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """As `project_fused`, for weights and biases."""
    return torch.split(project_weights_together(x, *layers), [len(weight) for weight, _ in layers], dim=-1)


def project_together(x: Tensor, *layers: nn.Linear) -> Tensor:
    """As `project_fused`, all results as one tensor."""
    return project_weights_together(x, *((layer.weight, layer.bias) for layer in layers))


def project_weights_together(x: Tensor, *layers: tuple[Tensor, Tensor]) -> Tensor:
    """As `project_together`, for weights and biases."""
    return apply_linear(x, torch.cat([weight for weight, _ in layers]), torch.cat([bias for _, bias in layers]))


def apply_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer as a matmul that also adds the bias, for any memory layout of x."""
    if x.is_contiguous():
        return F.linear(x, weight, bias)
    # With more than two dimensions, PyTorch would otherwise add the bias by a kernel of its own.
    return F.linear(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], len(weight))


def can_fuse(*layers: nn.Module) -> bool:
    """Whether all layers are plain ``nn.Linear`` layers, so that one matmul computes the same."""
    return all(is_plain(layer, nn.Linear) for layer in layers)


def project_and_activate(x: Tensor, layer: nn.Module, activation: nn.Module) -> Tensor:
    """Apply a linear layer and an activation; with the kernel for bias and GELU if both layers are plain."""
    if has_kernel(x) and has_product(layer) and _is_exact_gelu(activation):
        return bias_gelu(product(x, layer), layer.bias)
    activated: Tensor = activation(layer(x))
    return activated


def project_and_score(x: Tensor, layer: nn.Module, activation: nn.Module, output: nn.Linear) -> Tensor:
    """Apply a linear layer, an activation, and a linear layer with one output: [..., D] -> [...]."""
    if has_kernel(x) and has_product(layer) and _is_exact_gelu(activation) and is_plain(output, nn.Linear):
        return gelu_score(product(x, layer), layer.bias, output.weight[0]) + output.bias
    scores: Tensor = output(project_and_activate(x, layer, activation))
    return scores.squeeze(-1)


def has_product(layer: nn.Module) -> "TypeGuard[nn.Linear | GroupedLinear]":
    """Whether a layer is a plain linear one, dense or grouped, so that its bias can be added by what follows."""
    return is_plain(layer, nn.Linear) or is_plain(layer, GroupedLinear)


def product(x: Tensor, layer: "nn.Linear | GroupedLinear") -> Tensor:
    """The result of a layer that `has_product`, without its bias."""
    if isinstance(layer, GroupedLinear):
        return grouped_product(x, layer.weight)
    return F.linear(x, layer.weight)


def project_large(x: Tensor, up: nn.Module, activation: nn.Module, down: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Apply two linear layers with GELU between them, without keeping large activations for the backward pass.

    Returns the result without the bias of the second layer, and that bias. None if the activations are small, or
    without the kernel, which takes plain layers.
    """
    if not has_kernel(x) or not torch.is_grad_enabled():
        return None
    if not is_plain(up, nn.Linear) or not is_plain(down, nn.Linear) or not _is_exact_gelu(activation):
        return None
    if x.shape[:-1].numel() * up.out_features < _LARGE:
        return None
    return gelu_linear(F.linear(x, up.weight), up.bias, down.weight), down.bias


def _is_exact_gelu(activation: nn.Module) -> bool:
    return is_plain(activation, nn.GELU) and activation.approximate == "none"


class GroupedLinear(nn.Module):
    """A linear layer of independent blocks of channels (ConvBERT Eq. 7).

    One weight and one batched matmul for all groups, which is fast in training. For quantizers, convert it with
    :func:`lightbert.nn.ordinary.ordinary_layers`.
    """

    def __init__(self, inputs: int, outputs: int, groups: int) -> None:
        super().__init__()
        if inputs % groups or outputs % groups:
            raise InputError(f"groups ({groups}) must divide both widths, {inputs} and {outputs}")
        self.weight = nn.Parameter(torch.empty(groups, inputs // groups, outputs // groups))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return grouped_linear(x, self.weight, self.bias)


def linear(inputs: int, outputs: int, groups: int = 1) -> nn.Module:
    """Build a dense linear layer, or a grouped one if ``groups`` > 1."""
    return nn.Linear(inputs, outputs) if groups == 1 else GroupedLinear(inputs, outputs, groups)


def check_odd(kernel: int) -> int:
    """Check that a kernel size is odd, so that the kernel has a middle tap, and return it."""
    if kernel % 2 == 0:
        raise InputError(f"the kernel size must be odd, got {kernel}; use {kernel + 1}")
    return kernel


class Depthwise(nn.Module):
    """A convolution over tokens with one fixed kernel per channel; padding and other texts read as zero."""

    def __init__(self, width: int, kernel: int, *, bias: bool) -> None:
        super().__init__()
        kernel = check_odd(kernel)
        self.weight = nn.Parameter(torch.empty(width, kernel))
        self.bias = nn.Parameter(torch.empty(width)) if bias else None

    def initial_weights(self) -> Initial:
        """PyTorch's default for a convolution of this size, as in the code of Chang et al."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        return {name: Uniform(bound) for name, _ in self.named_parameters()}

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        return depthwise(x, self.weight, self.bias, mask.convolution_texts)


class ConvolutionalProjection(nn.Module):
    """A linear projection that applies a depthwise convolution first in half of its heads.

    The convolutional queries, keys and values of the composite paper (§5, Table 3); the convolved half comes first.
    """

    def __init__(self, width: int, outputs: int, kernel: int) -> None:
        super().__init__()
        if outputs % 2:
            raise InputError(f"the number of outputs must be even, got {outputs}")
        self.convolution = Depthwise(width, kernel, bias=True)
        self.convolved = nn.Linear(width, outputs // 2)
        self.direct = nn.Linear(width, outputs // 2)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """[B, T, D] -> [B, T, outputs]."""
        return torch.cat([self.convolved(self.convolution(x, mask)), self.direct(x)], dim=-1)
