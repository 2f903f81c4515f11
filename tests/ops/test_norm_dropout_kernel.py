"""Dropout in the kernels of residual + norm: the same elements in both passes, independent, drawn by PyTorch."""

import math

import pytest
import torch
import torch.nn.functional as F
from gradients import draw
from kernels import DEVICE, HALF, MARKS, Op, assert_exact, assert_no_coarser, by_kernel, results
from torch import Tensor

from lightbert.ops.backend import using
from lightbert.ops.randomness import mix
from lightbert.ops.residual_norm import residual_norm, residual_norm_operator

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]

EPS, DROPOUT, SEED = 1e-12, 0.3, 11
SHAPES = [(1, 1, 2), (3, 11, 7), (2, 5, 256), (4, 8, 256), (1, 3, 312), (1, 2, 1024), (131, 12), (41, 3, 40)]


def inputs(*shape: int, biased: bool = True) -> dict[str, Tensor]:
    given = {"x": draw(*shape) + 3, "change": draw(*shape), "weight": draw(shape[-1]), "bias": draw(shape[-1])}
    return given | {"change_bias": draw(shape[-1])} if biased else given


def factors(seed: int, tokens: int, width: int, dropout: float) -> Tensor:
    """What dropout multiplies each element [tokens, width] by."""
    token, channel = torch.arange(tokens)[:, None], torch.arange(width)
    word = (mix(mix(token) ^ seed) ^ mix((channel >> 1) ^ 0x243F6A88)) * 0x7FEB352D & 0xFFFFFFFF
    word = (word ^ (word >> 15)) * 0x2C1B3C6D & 0xFFFFFFFF
    half = torch.where(channel % 2 == 0, word >> 16, word & 0xFFFF)
    drop = round(dropout * 2**16)
    return (half >= drop).double() * 2**16 / (2**16 - drop)


def with_factors(seed: int, dropout: float) -> Op:
    """The reference, which removes the same elements."""

    def op(x: Tensor, change: Tensor, weight: Tensor, bias: Tensor, change_bias: Tensor | None = None) -> Tensor:
        width = x.shape[-1]
        change = change if change_bias is None else change + change_bias
        by = factors(seed, x.numel() // width, width, dropout).view(x.shape).to(DEVICE, x.dtype)
        return F.layer_norm(x + change * by, (width,), weight, bias, EPS)

    return op


def with_seed(seed: int, dropout: float) -> Op:
    """The kernel with a given seed."""

    def op(**given: Tensor) -> Tensor:
        return residual_norm_operator(**given, eps=EPS, seed=torch.tensor([seed], device=DEVICE), dropout=dropout)[0]

    return op


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_both_passes_remove_the_same_elements(shape, biased):
    assert_exact(with_seed(SEED, DROPOUT), with_factors(SEED, DROPOUT), inputs(*shape, biased=biased))


@pytest.mark.parametrize("dropout", [0.0, 1e-6, 0.1, 0.6, 0.9])
def test_every_rate_is_exact(dropout):
    assert_exact(with_seed(2**31 - 1, dropout), with_factors(2**31 - 1, dropout), inputs(3, 5, 64))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("width", [7, 64, 312])
def test_the_rounding_error_with_dropout_is_at_most_twice_the_reference(width, biased):
    assert_no_coarser(with_seed(SEED, DROPOUT), with_factors(SEED, DROPOUT), inputs(3, 11, width, biased=biased))


def test_tensors_with_dropout_may_have_any_memory_layout():
    assert_exact(with_seed(SEED, DROPOUT), with_factors(SEED, DROPOUT), inputs(3, 11, 24), spread=True)


def test_sums_of_many_programs_with_dropout_are_exact_and_equal_in_every_run(monkeypatch):
    monkeypatch.setattr("lightbert.ops.kernels.tiles.PROGRAMS", 3)
    op, given = with_seed(SEED, DROPOUT), inputs(41, 3, 40)
    assert_exact(op, with_factors(SEED, DROPOUT), given)
    runs = [results(op, given, HALF, spread=False) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@pytest.mark.parametrize("stages", [1, 3])
def test_loads_in_advance_change_nothing(stages):
    from lightbert.ops.kernels import residual_norm as kernel

    x, change, weight, bias, change_bias = (value.to(DEVICE, torch.float32) for value in inputs(64, 256).values())
    seed = torch.tensor([SEED], device=DEVICE)
    _, *statistics = kernel.forward(x, change, weight, bias, EPS, seed, DROPOUT, change_bias)
    passed = (x, x, change, weight, *statistics, seed, DROPOUT, change_bias)
    usual, found = (kernel.backward(*passed, programs=2, stages=number) for number in (1, stages))
    assert all(torch.equal(one, other) for one, other in zip(usual, found, strict=True))


def test_no_tokens_with_dropout_give_an_empty_result_and_gradients_of_zero():
    out, *gradients = results(with_seed(SEED, DROPOUT), inputs(2, 0, 8), torch.float32, spread=False)
    assert out.shape == (2, 0, 8)
    assert all((gradient == 0).all() for gradient in gradients)


def test_without_dropout_the_sum_has_one_gradient():
    from lightbert.ops.kernels import residual_norm as kernel

    x, change, weight, bias = (value.to(DEVICE, HALF) for value in inputs(3, 5, 16, biased=False).values())
    _, *statistics = kernel.forward(x, change, weight, bias, EPS)
    assert kernel.backward(x, x, change, weight, *statistics)[1] is None


def test_gradients_with_dropout_have_the_types_of_their_inputs():
    given = inputs(2, 5, 32)
    x = given["x"].to(DEVICE, torch.float32).requires_grad_()
    change = given["change"].to(DEVICE, HALF).requires_grad_()
    weight, bias = (given[name].to(DEVICE, torch.float32) for name in ("weight", "bias"))
    with using("triton"), torch.autocast(DEVICE, dtype=HALF):
        out = residual_norm(x, change, weight, bias, EPS, DROPOUT)
    assert out.dtype is HALF
    out.sum().backward()
    assert (x.grad.dtype, change.grad.dtype) == (torch.float32, HALF)
    assert (change.grad == 0).any()
    assert not (x.grad == 0).all()


def test_dropout_removes_independent_elements():
    """Shares of each token, channel and seed, and the correlations of neighbours, are those of independent draws."""
    tokens, width, dropout = 4096, 256, 0.1
    drawn, other = (factors(seed, tokens, width, dropout) for seed in (5, 6))
    removed, elsewhere = ((by == 0).double() - dropout for by in (drawn, other))
    deviation = math.sqrt(dropout * (1 - dropout))
    assert abs(drawn.mean() - 1) < 5 * deviation / (1 - dropout) / math.sqrt(tokens * width)
    assert removed.mean(0).abs().max() < 5 * deviation / math.sqrt(tokens)
    assert removed.mean(1).abs().max() < 5.5 * deviation / math.sqrt(width)
    # Neighbours, tokens a batch's row apart, and the other half of a hash.
    places = [(0, 1), (0, 2), (0, 128), (1, 0), (1, 1), (2, 0), (128, 0), (2048, 0)]
    for neighbour in (elsewhere, *(removed.roll(place, (0, 1)) for place in places)):
        assert abs((removed * neighbour).mean()) < 5 * deviation**2 / math.sqrt(tokens * width)
    # The number of removed elements of a token, and of a channel, spreads as a binomial one.
    for axis, count in ((0, tokens), (1, width)):
        spread = removed.sum(axis).square().mean() / (count * deviation**2)
        assert abs(spread - 1) < 5 * math.sqrt(2 / removed.shape[1 - axis])


def test_two_seeds_share_no_row():
    """Seeds that differ in the bits of a token's number don't permute the tokens."""
    rows = [{tuple(row) for row in factors(seed, 256, 256, 0.5).tolist()} for seed in (0, 1, 255)]
    assert all(len(each) == 256 for each in rows)
    assert not rows[0] & rows[1] | rows[0] & rows[2] | rows[1] & rows[2]


def test_dropout_depends_on_the_seed_of_pytorch_only():
    given = {name: value.to(DEVICE, torch.float32) for name, value in inputs(3, 5, 32).items()}
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append([by_kernel(residual_norm)(**given, eps=EPS, dropout=0.5) for _ in range(2)])
    assert torch.equal(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][1], runs[1][1])
    assert not torch.equal(runs[0][0], runs[0][1]), "two layers remove the same elements"
    assert not torch.equal(runs[0][0], runs[2][0]), "two seeds remove the same elements"


def test_torch_accepts_the_custom_op_with_dropout():
    *tensors, change_bias = (value.to(DEVICE, torch.float32).requires_grad_() for value in inputs(2, 3, 12).values())
    seed = torch.tensor([SEED], device=DEVICE)
    for added in (None, change_bias):
        torch.library.opcheck(residual_norm_operator, (*tensors, EPS, seed, DROPOUT, added), rtol=1e-4, atol=1e-4)
