"""Post-norm and bottleneck blocks."""

import pytest
import torch
from mixers import MIXERS, WIDTH, Make
from torch import nn

from lightbert.nn.blocks import BottleneckBlock, PostNormBlock
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.mask import Mask
from lightbert.nn.norms import NoNorm, Norm, layer_norm
from lightbert.nn.record import Record
from randomised import randomised

OUTSIDE = 24
"""The width outside a bottleneck block whose block width is WIDTH."""
MASK = Mask(torch.tensor([[True] * 7, [True] * 4 + [False] * 3]))


def feedforward(norm: Norm, dropout: float = 0.0) -> FeedForward:
    return FeedForward(WIDTH, 20, activation="gelu", norm=norm, dropout=dropout)


def post_norm(make: Make, norm: Norm, dropout: float = 0.0) -> nn.Module:
    inner = feedforward(norm)
    return randomised(PostNormBlock(WIDTH, mixer=make(), feedforward=inner, norm=norm, dropout=dropout))


def bottleneck(make: Make, norm: Norm, mixer_input: str = "shared", dropout: float = 0.0) -> nn.Module:
    """The mixers of `mixers` read WIDTH channels: inside this block, or outside if its input is "wide"."""
    width, inside = (WIDTH, OUTSIDE) if mixer_input == "wide" else (OUTSIDE, WIDTH)
    mixer = make(value_width=width) if mixer_input == "shared" else make()
    stack = nn.Sequential(*(FeedForward(inside, 20, activation="relu", norm=norm) for _ in range(2)))
    return randomised(
        BottleneckBlock(
            width, inside, mixer=mixer, mixer_input=mixer_input, feedforward=stack, norm=norm, dropout=dropout
        )
    )


NORMS = {"layer": layer_norm(1e-12), "none": NoNorm}
SHELLS = {
    "post-norm": (post_norm, WIDTH),
    "bottleneck, shared": (bottleneck, OUTSIDE),
    "bottleneck, narrow": (lambda *parts, **rest: bottleneck(*parts, mixer_input="narrow", **rest), OUTSIDE),
    "inverted bottleneck, wide": (lambda *parts, **rest: bottleneck(*parts, mixer_input="wide", **rest), WIDTH),
}


@pytest.fixture(params=SHELLS.values(), ids=SHELLS.keys())
def shell(request):
    return request.param


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS.keys())
@pytest.mark.parametrize("mixer", MIXERS)
def test_any_mixer_works_in_any_shell_with_any_norm(shell, mixer, norm):
    make, width = shell
    block = make(MIXERS[mixer], norm)
    x = torch.randn(2, 7, width)
    record = Record()
    out = block(x, MASK)
    assert out.shape == x.shape
    torch.testing.assert_close(block(x, MASK, record), out, rtol=1e-5, atol=1e-5)
    assert len(record.attention) == 1
    out.pow(3).sum().backward()
    for name, parameter in block.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_a_post_norm_block_adds_normalizes_and_applies_the_feed_forward():
    block = post_norm(MIXERS["attention"], layer_norm(1e-12))
    x = torch.randn(2, 7, WIDTH)
    mixed = block.output(block.mixer(x, MASK))
    torch.testing.assert_close(block(x, MASK), block.feedforward(block.norm(x + mixed)))


def test_a_shared_bottleneck_projects_queries_and_keys_together_and_values_from_outside():
    block = bottleneck(MIXERS["attention"], NoNorm)
    x = torch.randn(2, 7, OUTSIDE)
    inside, shared = block.enter_norm(block.enter(x)), block.shared_norm(block.shared(x))
    mixed = block.output(block.mixer(shared, MASK, value=x))
    inside = block.feedforward(block.norm(mixed + inside))
    torch.testing.assert_close(block(x, MASK), block.leave_norm(block.leave(inside) + x))


@pytest.mark.parametrize(("mixer_input", "reads"), [("narrow", "inside"), ("wide", "outside")])
def test_other_bottlenecks_have_no_shared_projection(mixer_input, reads):
    block = bottleneck(MIXERS["attention"], NoNorm, mixer_input)
    assert not any(name.startswith("shared") for name, _ in block.named_parameters())
    x = torch.randn(2, 7, block.enter.in_features)
    inside = block.enter_norm(block.enter(x))
    mixed = block.output(block.mixer(inside if reads == "inside" else x, MASK))
    inside = block.feedforward(block.norm(mixed + inside))
    torch.testing.assert_close(block(x, MASK), block.leave_norm(block.leave(inside) + x))


def test_dropout_applies_in_training_only(shell):
    make, width = shell
    block, x = make(MIXERS["attention"], layer_norm(1e-12), dropout=0.5), torch.randn(2, 7, width)
    assert torch.equal(block(x, MASK), block(x, MASK))
    block.train()
    assert not torch.equal(block(x, MASK), block(x, MASK))
