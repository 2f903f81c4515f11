"""Normalization layers, the type of a function that builds one, and residual connections that end with one."""

from collections.abc import Callable
from functools import partial
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.nn.distributions import Constant, Initial
from lightbert.nn.plain_layers import is_plain
from lightbert.nn.projections import can_fuse, has_product, product, project, project_weights
from lightbert.ops.backend import as_autocast, on_gpu
from lightbert.ops.residual_norm import has_kernel, residual_norm

Norm = Callable[[int], nn.Module]
"""Builds a norm for a width: ``layer_norm(1e-12)`` or ``NoNorm``."""


def layer_norm(eps: float) -> Norm:
    """Return a function that builds a LayerNorm with this epsilon for a width."""
    return partial(nn.LayerNorm, eps=eps)


class NoNorm(nn.Module):
    """A scale and a shift per channel without statistics, for low latency (MobileBERT §3.3, Eq. 1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def initial_weights(self) -> Initial:
        """Start as the identity."""
        return {"weight": Constant(1.0)}

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        # Under autocast in half precision, which every layer rounds its input to anyway: the scale is float32, and so
        # would be all states between layers, with twice the bytes.
        return as_autocast(x * self.weight + self.bias)


def project_and_norm(x: Tensor, *layers: tuple[nn.Linear, nn.Module | None]) -> tuple[Tensor, ...]:
    """norm(layer(x)) for several layers with their norms, if they have one, [..., D] each.

    On a GPU as one matmul if the layers are plain, with the scales and shifts of each plain `NoNorm` in its weights.
    """
    linears, norms = [layer for layer, _ in layers], [norm for _, norm in layers]
    if on_gpu(x) and can_fuse(*linears) and _are_scales(norms):
        return project_weights(x, *(_scaled(layer, norm) for layer, norm in zip(linears, norms, strict=True)))
    projected = zip(project(x, *linears), norms, strict=True)
    return tuple(one if norm is None else norm(one) for one, norm in projected)


def project_add_and_norm(
    x: Tensor, inputs: Tensor, layer: nn.Module, norm: nn.Module, dropout: nn.Dropout | None = None
) -> Tensor:
    """norm(x + dropout(layer(inputs))), [..., D]; with the layer's bias in the kernel if the layers are plain.

    On a GPU, the scale of a plain `NoNorm` is applied to the layer's weights and to x: the sum is not needed for its
    gradient, and the gradient of the result is that of the layer's output as it is.
    """
    rate = _rate(dropout)
    if has_product(layer) and rate is not None:
        if is_plain(norm, nn.LayerNorm) and has_kernel(x, as_autocast(inputs)):
            # The kernel's backward pass also sums the bias's gradient; autograd would read the change's again.
            return add_and_norm(x, product(inputs, layer), norm, dropout, layer.bias)
        if is_plain(layer, nn.Linear) and is_plain(norm, NoNorm) and on_gpu(x):
            scale = norm.weight
            change = F.linear(inputs, layer.weight * scale.unsqueeze(-1), layer.bias * scale)
            return as_autocast(x * scale + norm.bias) + (change if dropout is None else dropout(change))
    return add_and_norm(x, layer(inputs), norm, dropout)


def _are_scales(norms: list[nn.Module | None]) -> TypeGuard[list[NoNorm | None]]:
    return all(norm is None or is_plain(norm, NoNorm) for norm in norms)


def _scaled(layer: nn.Linear, norm: NoNorm | None) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer that computes norm(layer(x))."""
    if norm is None:
        return layer.weight, layer.bias
    return layer.weight * norm.weight.unsqueeze(-1), layer.bias * norm.weight + norm.bias


def add_and_norm(
    x: Tensor,
    change: Tensor,
    norm: nn.Module,
    dropout: nn.Dropout | None = None,
    change_bias: Tensor | None = None,
) -> Tensor:
    """norm(x + dropout(change + change_bias)), [..., D]; as one kernel if the layers are plain."""
    rate = _rate(dropout)
    if has_kernel(x, change) and is_plain(norm, nn.LayerNorm) and rate is not None:
        return residual_norm(x, change, norm.weight, norm.bias, norm.eps, rate, change_bias=change_bias)
    if change_bias is not None:
        change = change + change_bias
    result: Tensor = norm(x + (change if dropout is None else dropout(change)))
    return result


def _rate(dropout: nn.Dropout | None) -> float | None:
    """The probability with which elements are dropped; None if only the layer itself can do it."""
    if dropout is None:
        return 0.0
    if not is_plain(dropout, nn.Dropout):
        return None
    rate = dropout.p if dropout.training else 0.0
    return rate if rate < 1 else None
