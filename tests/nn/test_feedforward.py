"""Dense, grouped and stacked feed-forwards."""

import pytest
import torch
from torch import nn

from lightbert.errors import InputError
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.norms import NoNorm, layer_norm
from randomised import randomised

WIDTH, INNER = 8, 12
NORMS = {"layer": layer_norm(1e-12), "none": NoNorm}


def dense(groups: int = 1, norm: str = "layer", dropout: float = 0.0, activation: str = "gelu") -> FeedForward:
    return FeedForward(WIDTH, INNER, activation=activation, norm=NORMS[norm], groups=groups, dropout=dropout)


def stack(groups: int = 1, norm: str = "layer", dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(*(dense(groups, norm, dropout) for _ in range(3)))


@pytest.fixture(params=[dense, stack], ids=["single", "stacked"])
def make(request):
    return request.param


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_every_kind_keeps_the_width_and_trains_every_parameter(make, groups, norm):
    part = randomised(make(groups, norm))
    out = part(torch.randn(3, 5, WIDTH))
    assert out.shape == (3, 5, WIDTH)
    out.pow(3).sum().backward()
    for name, parameter in part.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().amax() > 0, name


@pytest.mark.parametrize("groups", [1, 2])
def test_a_feed_forward_never_mixes_tokens(make, groups):
    part, x = randomised(make(groups)), torch.randn(2, 5, WIDTH)
    token_by_token = torch.stack([part(x[:, t]) for t in range(5)], dim=1)
    torch.testing.assert_close(part(x), token_by_token, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "relu6"])
def test_the_residual_is_added_before_the_norm(activation):
    part, x = randomised(dense(activation=activation)), torch.randn(4, WIDTH)
    functions = {
        "gelu": lambda z: 0.5 * z * (1 + torch.erf(z / 2**0.5)),
        "gelu_tanh": lambda z: 0.5 * z * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (z + 0.044715 * z**3))),
        "relu": lambda z: z.clamp(min=0),
        "relu6": lambda z: z.clamp(0, 6),
    }
    inner = functions[activation](x @ part.up.weight.T + part.up.bias)
    total = x + inner @ part.down.weight.T + part.down.bias
    centred = total - total.mean(-1, keepdim=True)
    scaled = centred / total.var(-1, correction=0, keepdim=True).sqrt()
    torch.testing.assert_close(part(x), scaled * part.norm.weight + part.norm.bias, rtol=1e-5, atol=1e-5)


def test_a_grouped_feed_forward_equals_a_dense_one_with_block_diagonal_weights():
    grouped, whole = randomised(dense(groups=2)), randomised(dense())
    with torch.no_grad():
        for part in ("up", "down"):
            blocks = grouped.get_submodule(part).weight  # [g, in/g, out/g]
            whole.get_submodule(part).weight.copy_(torch.block_diag(*blocks).T)
            whole.get_submodule(part).bias.copy_(grouped.get_submodule(part).bias)
        whole.norm.load_state_dict(grouped.norm.state_dict())
    x = torch.randn(3, WIDTH)
    torch.testing.assert_close(grouped(x), whole(x), rtol=1e-5, atol=1e-5)


def test_dropout_applies_in_training_only(make):
    part, x = randomised(make(dropout=0.5)), torch.randn(3, WIDTH)
    assert torch.equal(part(x), part(x))
    part.train()
    assert not torch.equal(part(x), part(x))


def test_groups_must_divide_both_widths():
    with pytest.raises(InputError, match=r"groups \(3\) must divide both widths, 8 and 12"):
        dense(groups=3)


def test_the_error_for_an_unknown_activation_suggests_the_nearest():
    with pytest.raises(InputError, match="'gelu_tan'; did you mean 'gelu_tanh'"):
        dense(activation="gelu_tan")
