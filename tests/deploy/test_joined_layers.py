"""Linear layers of a traced module that read the same input, as one layer."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from lightbert.deploy.joined_layers import join_layers
from lightbert.models import build, preset

linear = torch.ops.aten.linear.default


class Projections(nn.Module):
    """Three layers of one input, a layer without a bias, and two of another input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 4), nn.Linear(6, 3), nn.Linear(6, 5)
        self.unbiased = nn.Linear(6, 2, bias=False)
        self.left, self.right = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        middle = torch.relu(self.second(x))
        return self.first(x), self.third(x), self.unbiased(x), self.left(middle) * self.right(middle)


def traced(module: nn.Module, *inputs: Tensor) -> torch.fx.GraphModule:
    found: torch.fx.GraphModule = torch.export.export(module, inputs).module()
    return found


def layers(module: torch.fx.GraphModule) -> list[int]:
    """The width of each linear layer."""
    return [node.meta["val"].shape[-1] for node in module.graph.nodes if node.target is linear]


def test_layers_with_one_input_are_one_layer_with_the_same_result():
    x = torch.randn(2, 7, 6)
    module = traced(Projections(), x)
    expected = module(x)
    join_layers(module)
    assert sorted(layers(module)) == [2, 4, 12]
    for found, other in zip(module(x), expected, strict=True):
        torch.testing.assert_close(found, other)


def test_parts_keep_the_shape_of_their_layer_for_later_passes():
    x = torch.randn(2, 7, 6)
    module = traced(Projections(), x)
    join_layers(module)
    parts = [node for node in module.graph.nodes if node.target is torch.ops.aten.slice.Tensor]
    assert sorted(part.meta["val"].shape for part in parts) == [(2, 7, width) for width in (2, 2, 3, 4, 5)]


def test_a_module_without_such_layers_stays_as_it_is():
    x = torch.randn(2, 3)
    module = traced(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5)), x)
    before = str(module.graph)
    join_layers(module)
    assert str(module.graph) == before


def test_queries_keys_values_and_bottlenecks_of_mobilebert_are_joined():
    config = replace(preset("mobilebert"), depth=1, width=32, block_width=16, inner=16, n_heads=2, vocab=50)
    model = build(config, seed=0).eval()
    ids = torch.randint(1, 50, (1, 6))
    module = traced(model, ids, ids > 0)
    expected, before = module(ids, ids > 0), len(layers(module))
    join_layers(module)
    # The two bottlenecks and the value read the block's input, query and key the second bottleneck.
    assert before - len(layers(module)) == 3
    torch.testing.assert_close(module(ids, ids > 0), expected, rtol=1e-4, atol=1e-4)
