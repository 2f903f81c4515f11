"""Several projections as one matmul, only if the result is the same."""

import pytest
import torch
from torch import nn

from lightbert.nn.fused import can_fuse, project, project_fused


def layers() -> tuple[nn.Linear, nn.Linear]:
    return nn.Linear(6, 4), nn.Linear(6, 3)


class Adapted(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


def hooked(layer: nn.Linear) -> None:
    layer.register_forward_hook(lambda module, inputs, output: output + 1)


def pre_hooked(layer: nn.Linear) -> None:
    layer.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))


def backward_hooked(layer: nn.Linear) -> None:
    layer.register_full_backward_hook(lambda module, into, out: into)


def replaced(layer: nn.Linear) -> None:
    layer.forward = lambda x: x[..., :4]


def adapted(layer: nn.Linear) -> None:
    layer.__class__ = Adapted


def parametrized(layer: nn.Linear) -> None:
    torch.nn.utils.parametrizations.weight_norm(layer)


def without_bias(layer: nn.Linear) -> None:
    layer.bias = None


def of_integers(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(torch.ones(4, 6, dtype=torch.int8), requires_grad=False)


class Quantized(torch.Tensor):
    """A tensor subclass, as quantizers and sharding use for weights."""


def of_another_tensor_class(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(Quantized))


CHANGES = (
    hooked,
    pre_hooked,
    backward_hooked,
    replaced,
    adapted,
    parametrized,
    without_bias,
    of_integers,
    of_another_tensor_class,
)


def test_fused_and_separate_projections_are_equal():
    pair, x = layers(), torch.randn(2, 5, 6)
    assert can_fuse(*pair)
    for together, alone in zip(project_fused(x, *pair), project(x, *pair), strict=True):
        torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("place", [0, 1])
def test_a_modified_linear_layer_is_called_instead_of_fused(change, place):
    pair = (nn.Linear(6, 4), nn.Linear(6, 4))
    change(pair[place])
    assert not can_fuse(*pair)


@pytest.mark.parametrize("change", [hooked, adapted])
def test_compiled_code_also_calls_a_modified_layer(change):
    pair, x = layers(), torch.randn(2, 6)
    change(pair[0])

    @torch.compile(backend="eager", fullgraph=True)
    def chosen(x):
        return project_fused(x, *pair)[0] if can_fuse(*pair) else pair[0](x)

    torch.testing.assert_close(chosen(x), pair[0](x))


def test_compiled_code_uses_the_fused_projection():
    pair = layers()
    taken = []

    def graph_of(module, inputs):
        taken.extend(node.target for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    @torch.compile(backend=graph_of, fullgraph=True)
    def chosen(x):
        return project_fused(x, *pair) if can_fuse(*pair) else tuple(layer(x) for layer in pair)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        chosen(torch.randn(2, 6))
    assert taken.count(torch._C._nn.linear) == 1
    assert torch.cat in taken
