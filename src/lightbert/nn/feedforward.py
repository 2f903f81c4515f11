"""The feed-forward network of a block, with its residual and norm: dense, or in groups of channels."""

import torch
from torch import Tensor, nn

from lightbert.errors import InputError, unknown
from lightbert.nn.norms import Norm
from lightbert.ops.grouped_linear import grouped_linear


class FeedForward(nn.Module):
    """norm(x + down(activation(up(x)))), dense or in groups of channels (ConvBERT §3.3)."""

    def __init__(
        self, width: int, inner: int, *, activation: str, norm: Norm, groups: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.width = width
        self.up = linear(width, inner, groups)
        self.down = linear(inner, width, groups)
        self.activation = activation_layer(activation)
        self.dropout = nn.Dropout(dropout)
        self.norm = norm(width)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        result: Tensor = self.norm(x + self.dropout(self.down(self.activation(self.up(x)))))
        return result


class GroupedLinear(nn.Module):
    """A linear layer of independent blocks of channels (ConvBERT Eq. 7).

    One weight and one batched matmul for all groups, which is fast in training. For quantizers, convert it with
    :func:`lightbert.nn.quantization.ordinary_layers`.
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


def activation_layer(name: str) -> nn.Module:
    """Build gelu (the erf form: BERT, ELECTRA, ConvBERT), gelu_tanh (IB-BERT), relu (MobileBERT) or relu6 (its QAT)."""
    match name:
        case "gelu":
            return nn.GELU()
        case "gelu_tanh":
            return nn.GELU(approximate="tanh")
        case "relu":
            return nn.ReLU()
        case "relu6":
            return nn.ReLU6()
    raise unknown("activation", name, ["gelu", "gelu_tanh", "relu", "relu6"])
