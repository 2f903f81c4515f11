"""Normalisation layers, and the type by which blocks are told which one to build."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

Norm = Callable[[int], nn.Module]
"""Builds a norm for a width: ``layer_norm(1e-12)`` or ``NoNorm``."""


def layer_norm(eps: float) -> Norm:
    """LayerNorm with the given epsilon, still to be told its width."""
    return partial(nn.LayerNorm, eps=eps)


class NoNorm(nn.Module):
    """A scale and a shift per channel, and no statistics: cheap on a phone (MobileBERT §3.3, Eq. 1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start as the identity."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return x * self.weight + self.bias
