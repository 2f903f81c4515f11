"""The kernels of a linear layer's cross-entropy against fp64: unusual sizes, every gradient, samples."""

import pytest
import torch
import torch.nn.functional as F
from gradients import draw
from kernels import DEVICE, HALF, MARKS, assert_exact, assert_no_coarser, results
from torch import Tensor

from lightbert.ops.backend import using
from lightbert.ops.linear_cross_entropy import linear_cross_entropy, linear_cross_entropy_operator

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]

SHAPES = {
    "one entry": (2, 3, 16, 1),
    "few": (2, 3, 16, 7),
    "a whole block": (1, 2, 64, 128),
    "several blocks": (1, 131, 32, 301),
    "whole tiles": (2, 64, 16, 192),
    "empty": (0, 3, 16, 7),
}
"""Batch, positions of a row, width, vocabulary."""


def inputs_of(shape: tuple[int, int, int, int], scale: float = 1.0) -> dict[str, Tensor]:
    batch, positions, width, vocab = shape
    return {
        "features": draw(batch, positions, width),
        "table": scale * draw(vocab, width) / width**0.5,
        "bias": draw(vocab),
    }


def targets_of(shape: tuple[int, int, int, int]) -> Tensor:
    return torch.randint(0, shape[-1], shape[:2], device=DEVICE)


def loss(features: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    return linear_cross_entropy(features, table, bias, targets)[0]


def loss_by_kernel(**inputs: Tensor) -> Tensor:
    with using("triton"):
        return loss(**inputs)


@pytest.mark.parametrize("spread", [False, True], ids=["side by side", "scattered"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_loss_and_its_gradients_are_exact_in_single_precision(shape, spread):
    assert_exact(loss_by_kernel, loss, inputs_of(shape, 3.0), spread=spread, targets=targets_of(shape))


@pytest.mark.parametrize("name", ["few", "several blocks"])
def test_their_rounding_error_is_at_most_twice_the_reference(name):
    draws = [inputs_of(SHAPES[name], 3.0) for _ in range(3)]
    assert_no_coarser(loss_by_kernel, loss, *draws, targets=targets_of(SHAPES[name]))


@pytest.mark.parametrize("name", ["one entry", "few", "several blocks"])
def test_a_target_is_correct_if_no_entry_is_likelier(name):
    shape = SHAPES[name]
    given = {name: value.to(DEVICE, torch.float32) for name, value in inputs_of(shape, 5.0).items()}
    likeliest = F.linear(*given.values()).argmax(-1)
    targets = torch.where(torch.rand(likeliest.shape, device=DEVICE) < 0.5, likeliest, targets_of(shape))
    with using("triton"):
        _, correct, drawn = linear_cross_entropy(**given, targets=targets)
    assert torch.equal(correct, targets == likeliest)
    assert drawn is None


@pytest.mark.parametrize("name", ["one entry", "few", "several blocks"])
def test_a_sample_is_the_entry_where_the_cumulative_sum_reaches_the_chance(name):
    shape = SHAPES[name]
    given = {name: value.to(DEVICE, HALF) for name, value in inputs_of(shape, 3.0).items()}
    chances = torch.rand(shape[:2], device=DEVICE)
    with using("triton"):
        drawn = linear_cross_entropy(**given, targets=targets_of(shape), chances=chances)[2]
    shares = F.linear(*(value.double() for value in given.values())).softmax(-1)
    above = shares.cumsum(-1).gather(-1, drawn[..., None])[..., 0]
    below = above - shares.gather(-1, drawn[..., None])[..., 0]
    assert (chances <= above + 1e-5).all()
    assert (chances >= below - 1e-5).all()


@pytest.mark.parametrize("last", [1, 128, 200])
def test_an_entry_with_share_0_is_never_drawn(last):
    """Rounding can make the last cumulative sum smaller than 1, also at the end of a block."""
    given = {name: value.to(DEVICE, torch.float32) for name, value in inputs_of((1, 32, 16, 301)).items()}
    given["bias"][last:] = -torch.inf
    chances = torch.tensor([0.0, 1 - 2**-24, 1.0, 0.5], device=DEVICE).repeat(8)[None]
    with using("triton"):
        drawn = linear_cross_entropy(**given, targets=torch.zeros_like(chances).long(), chances=chances)[2]
    assert 0 <= drawn.min() <= drawn.max() < last


def test_a_second_run_gives_the_same_bits():
    shape = SHAPES["several blocks"]
    given, targets = inputs_of(shape), targets_of(shape)
    runs = [results(loss_by_kernel, given, HALF, spread=False, targets=targets) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@pytest.mark.parametrize("with_chances", [False, True])
def test_torch_accepts_the_custom_op(with_chances):
    """Schema, fake tensors, autograd registration and tracing, by torch's own checks."""
    given = [value.to(DEVICE, torch.float32).requires_grad_() for value in inputs_of(SHAPES["few"]).values()]
    chances = torch.rand(2, 3, device=DEVICE) if with_chances else None
    torch.library.opcheck(linear_cross_entropy_operator, (*given, targets_of(SHAPES["few"]), chances))
