"""Normalization layers, and the type of a function that builds one."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from lightbert.nn.init import Constant, Initial
from lightbert.ops.backend import as_autocast

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
