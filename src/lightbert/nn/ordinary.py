"""Convert a model to plain ``nn.Linear`` layers, which is what quantizers support."""

import torch
from torch import Tensor, nn

from lightbert.nn.projections import GroupedLinear


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
