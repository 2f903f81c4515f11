"""Quantizers that replace nn.Linear cover every matmul of a block and of the beam head."""

import torch
from torch import Tensor, nn

from lightbert.nn.feedforward import FeedForward, GroupedLinear
from lightbert.nn.heads import BeamSpan
from lightbert.nn.norms import NoNorm
from lightbert.nn.quantization import ordinary_layers
from randomised import randomised


class EightBit(nn.Module):
    """A linear layer whose weight is rounded to 8 bits per output; it has no ``weight`` attribute."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.scale = layer.weight.detach().abs().amax(1, keepdim=True) / 127
        self.rounded = (layer.weight.detach() / self.scale).round().to(torch.int8)
        self.offset = layer.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.rounded * self.scale).T + self.offset


def quantized(model: nn.Module) -> nn.Module:
    for name, part in list(model.named_modules()):
        if isinstance(part, nn.Linear):
            model.set_submodule(name, EightBit(part))
    return model


def grouped() -> FeedForward:
    return randomised(FeedForward(8, 12, activation="gelu", norm=NoNorm, groups=2))


def test_a_grouped_layer_becomes_one_linear_layer_per_group_and_computes_the_same():
    model, x = grouped(), torch.randn(3, 5, 8)
    before = model(x)
    assert ordinary_layers(model) is model
    assert not any(isinstance(part, GroupedLinear) for part in model.modules())
    assert [layer.weight.shape for layer in model.modules() if isinstance(layer, nn.Linear)] == [(6, 4)] * 2 + [
        (4, 6)
    ] * 2
    torch.testing.assert_close(model(x), before)


def test_a_frozen_layer_stays_frozen():
    model = ordinary_layers(grouped().requires_grad_(requires_grad=False))
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_a_model_without_grouped_layers_is_unchanged():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    parts = list(model)
    assert list(ordinary_layers(model)) == parts


def test_quantized_layers_of_a_grouped_feed_forward_are_called():
    model, x = grouped(), torch.randn(3, 5, 8)
    before = model(x)
    after = quantized(ordinary_layers(model))(x)
    assert 0 < (after - before).norm() < 0.02 * before.norm()
    assert not [name for name, _ in model.named_parameters() if not name.startswith("norm.")]


def test_quantized_layers_of_the_beam_head_are_called():
    head, states = randomised(BeamSpan(8, inner=12, beam=3)), torch.randn(2, 6, 8)
    before = head(states, gold=torch.tensor([1, 4]))
    after = quantized(head)(states, gold=torch.tensor([1, 4]))
    for exact, rounded in ((before.end, after.end), (before.impossible, after.impossible)):
        assert 0 < (rounded - exact).norm() < 0.05 * exact.norm()
