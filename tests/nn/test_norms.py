"""LayerNorm and NoNorm."""

import pytest
import torch

from lightbert.nn.norms import NoNorm, layer_norm


def test_no_norm_starts_as_the_identity():
    x = torch.randn(2, 3, 5)
    assert torch.equal(NoNorm(5)(x), x)


def test_no_norm_scales_and_shifts_each_channel_and_takes_no_statistics():
    norm = NoNorm(3)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0, -1.0]))
        norm.bias.copy_(torch.tensor([0.0, 1.0, 5.0]))
    assert norm(torch.tensor([[1.0, 1.0, 1.0], [10.0, 20.0, 30.0]])).tolist() == [[1, 3, 4], [10, 41, -25]]


def test_layer_norm_has_the_given_epsilon():
    tiny = torch.tensor([[1e-3, -1e-3]])
    assert layer_norm(1e-12)(2)(tiny)[0, 0].item() == pytest.approx(1.0)
    assert layer_norm(1.0)(2)(tiny)[0, 0].item() == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("norm", [NoNorm, layer_norm(1e-12)], ids=["none", "layer"])
def test_the_parameters_of_every_norm_are_called_weight_and_bias(norm):
    assert {name: list(value.shape) for name, value in norm(7).named_parameters()} == {"weight": [7], "bias": [7]}


def test_without_a_norm_states_have_half_precision_under_autocast():
    norm, x = NoNorm(3), torch.randn(2, 3)
    norm.weight.data.uniform_(1, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = norm(x.bfloat16())
    assert torch.equal(out, (x.bfloat16().float() * norm.weight + norm.bias).bfloat16())
