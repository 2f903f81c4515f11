"""Quantization: layers that round as int8 files do, for training, and plain linear layers for quantizers.

As in MobileBERT's released code, inputs have 256 asymmetric steps in a range that is a moving average over batches,
weights 255 symmetric steps up to their largest value; gradients pass through the rounding, except where values are
clipped. The embeddings and the MLM head are not quantized.

Deviation: only what an exported file computes in int8 is simulated, the linear layers; the released code also rounds
attention scores and the products inside a NoNorm, and clips the masked scores to [-6, 60] so that they have a range.
Weights have one scale per output channel instead of one per layer. The average starts with the first batch instead of
±6 and has a decay of 0.99 instead of 0.999, so that short runs learn their ranges, too.
"""

import copy
from collections.abc import Mapping
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.nn.feedforward import GroupedLinear

_Module = TypeVar("_Module", bound=nn.Module)

DECAY = 0.99
"""The weight of the average in a new average; the rest is that of a batch."""
_EXCLUDED = ("embeddings.", "heads.mlm.")
_SMALLEST = 1e-12


class SimulatedInt8Linear(nn.Linear):
    """A linear layer with rounded inputs and weights, with the parameters of the layer that it replaces.

    ``input_range`` is a parameter without a gradient, so that checkpoints contain it; [0, 0] before the first batch.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__(layer.in_features, layer.out_features, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.input_range = nn.Parameter(torch.zeros(2, device=layer.weight.device), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        low, high = self._range(x.detach())
        scale = (high - low).clamp(min=_SMALLEST) / 255
        zero = (-low / scale).round().clamp(0, 255).int()
        rounded = torch.fake_quantize_per_tensor_affine(x.float(), scale, zero, 0, 255)
        return F.linear(rounded.to(x.dtype), self._rounded_weight().to(x.dtype), self.bias)

    @torch.no_grad()
    def _range(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The range of this batch in evaluation before training, otherwise the average, to which training adds it."""
        # Zero is always a value of the range, so that padding and relu are exact.
        seen = torch.stack([x.amin().clamp(max=0), x.amax().clamp(min=0)]).float()
        known = self.input_range[0] < self.input_range[1]
        average = self.input_range.lerp(seen, 1 - DECAY) if self.training else self.input_range
        chosen = torch.where(known, average, seen)
        if self.training:
            self.input_range.copy_(chosen)
        return chosen[0], chosen[1]

    def _rounded_weight(self) -> Tensor:
        weight = self.weight.float()
        scale = weight.detach().abs().amax(dim=1).clamp(min=_SMALLEST) / 127
        zeros = torch.zeros_like(scale, dtype=torch.int32)
        rounded: Tensor = torch.fake_quantize_per_channel_affine(weight, scale, zeros, 0, -127, 127)
        return rounded


def simulate_int8(model: nn.Module) -> None:
    """Replace the linear layers of a model by layers that simulate int8; parameters keep their names."""
    for name, part in list(model.named_modules()):
        if type(part) is nn.Linear and not name.startswith(_EXCLUDED):
            model.set_submodule(name, SimulatedInt8Linear(part))


def simulated_copy(model: _Module, ranges: Mapping[str, tuple[float, float]]) -> _Module:
    """A copy of a model that simulates int8 in the layers with known ranges."""
    copied = copy.deepcopy(model)
    for name, values in ranges.items():
        layer = copied.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        simulated = SimulatedInt8Linear(layer)
        simulated.input_range.data = torch.tensor(values)
        copied.set_submodule(name, simulated)
    return copied.eval()


def remove_simulation(model: nn.Module) -> dict[str, tuple[float, float]]:
    """Put plain layers back and return the ranges of their inputs by name; layers that saw no batch have none."""
    ranges = {}
    for name, part in list(model.named_modules()):
        if isinstance(part, SimulatedInt8Linear):
            plain = nn.Linear(part.in_features, part.out_features, device="meta")
            plain.weight, plain.bias = part.weight, part.bias
            model.set_submodule(name, plain)
            low, high = part.input_range.tolist()
            if low < high:
                ranges[name] = (low, high)
    return ranges


class LinearPerGroup(nn.Module):
    """A GroupedLinear as one ``nn.Linear`` per group."""

    def __init__(self, grouped: GroupedLinear) -> None:
        super().__init__()
        weights, biases = grouped.weight.detach(), grouped.bias.detach()
        self.layers = nn.ModuleList()
        for weight, bias in zip(weights, biases.chunk(len(weights)), strict=True):  # [I, O] and [O]
            inputs, outputs = weight.shape
            layer = nn.Linear(inputs, outputs, device="meta")
            layer.weight = nn.Parameter(weight.t().contiguous(), requires_grad=grouped.weight.requires_grad)
            layer.bias = nn.Parameter(bias.clone(), requires_grad=grouped.bias.requires_grad)
            self.layers.append(layer)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        blocks = x.chunk(len(self.layers), dim=-1)
        return torch.cat([layer(block) for layer, block in zip(self.layers, blocks, strict=True)], dim=-1)


def ordinary_layers(model: nn.Module) -> nn.Module:
    """Replace every GroupedLinear by ``nn.Linear`` layers, in place; the model computes the same.

    For inference: quantizers can then swap all linear layers. The parameters of the replaced layers get new names, so
    save the model before converting it.
    """
    for name, part in list(model.named_modules()):
        if name and isinstance(part, GroupedLinear):
            model.set_submodule(name, LinearPerGroup(part))
    return model
