"""The kernels between matmuls, residual + norm and bias + GELU, against fp64: all widths, every gradient."""

from collections.abc import Callable

import pytest
import torch
from gradients import draw
from kernels import DEVICE, HALF, MARKS, assert_exact, assert_no_coarser, by_kernel, results
from torch import Tensor

from lightbert.ops.backend import using
from lightbert.ops.bias_gelu import (
    bias_gelu,
    bias_gelu_operator,
    gelu_linear,
    gelu_linear_operator,
    gelu_score,
    gelu_score_operator,
)
from lightbert.ops.residual_norm import residual_norm, residual_norm_operator

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]

WIDTHS = (1, 7, 64, 128, 256, 312, 768, 1024, 2048)
EPS = 1e-12


def norm_inputs(*shape: int) -> dict[str, Tensor]:
    # A mean far from zero shows whether the variance is computed from differences.
    return {"x": draw(*shape) + 3, "change": draw(*shape), "weight": draw(shape[-1]), "bias": draw(shape[-1])}


def biased_inputs(*shape: int) -> dict[str, Tensor]:
    return norm_inputs(*shape) | {"change_bias": draw(shape[-1])}


def norm(x: Tensor, change: Tensor, weight: Tensor, bias: Tensor, change_bias: Tensor | None = None) -> Tensor:
    return residual_norm(x, change, weight, bias, EPS, change_bias=change_bias)


def gelu_inputs(*shape: int) -> dict[str, Tensor]:
    return {"x": 2 * draw(*shape), "bias": draw(shape[-1])}


def linear_inputs(*shape: int) -> dict[str, Tensor]:
    width = shape[-1]
    return {**gelu_inputs(*shape), "weight": draw(width, width) / width**0.5}


def score_inputs(*shape: int) -> dict[str, Tensor]:
    return {**gelu_inputs(*shape), "weight": draw(shape[-1]) / shape[-1] ** 0.5}


OPS = {
    "residual_norm": (norm, norm_inputs),
    "residual_norm with a bias": (norm, biased_inputs),
    "bias_gelu": (bias_gelu, gelu_inputs),
    "gelu_linear": (gelu_linear, linear_inputs),
    "gelu_score": (gelu_score, score_inputs),
}
Case = tuple[Callable[..., Tensor], Callable[..., dict[str, Tensor]]]


@pytest.fixture(params=OPS)
def case(request: pytest.FixtureRequest) -> Case:
    return OPS[request.param]


@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_is_exact_in_single_precision(case, width):
    op, inputs = case
    # A norm over one channel is constant: its gradient is a difference of equal numbers, times 1/sqrt(eps).
    if op is norm and width == 1:
        pytest.skip("the gradient of a norm over one channel is 0 · ∞")
    assert_exact(by_kernel(op), op, inputs(1, 3, width))


@pytest.mark.parametrize("width", [7, 64, 312])
def test_the_rounding_error_is_at_most_twice_the_reference(case, width):
    op, inputs = case
    assert_no_coarser(by_kernel(op), op, inputs(3, 11, width))


@pytest.mark.parametrize("shape", [(1, 1), (1, 67), (3, 23), (131,), (2, 3, 4)], ids=str)
def test_any_number_of_tokens_is_supported(case, shape):
    op, inputs = case
    assert_exact(by_kernel(op), op, inputs(*shape, 12))


@pytest.mark.parametrize("shape", [(0, 5, 8), (2, 0, 8)], ids=str)
def test_no_tokens_give_an_empty_result_and_gradients_of_zero(case, shape):
    op, inputs = case
    out, *gradients = results(by_kernel(op), inputs(*shape), torch.float32, spread=False)
    assert out.shape == (shape[:-1] if op is gelu_score else shape)
    assert all((gradient == 0).all() for gradient in gradients)


def test_tensors_may_have_any_memory_layout(case):
    op, inputs = case
    assert_exact(by_kernel(op), op, inputs(3, 11, 24), spread=True)


def test_sums_over_tokens_of_many_programs_are_exact_and_equal_in_every_run(case, monkeypatch):
    monkeypatch.setattr("lightbert.ops.kernels.tiles.PROGRAMS", 3)
    op, inputs = case
    given = inputs(41, 3, 40)
    assert_exact(by_kernel(op), op, given)
    runs = [results(by_kernel(op), given, HALF, spread=False) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


def test_more_programs_than_one_round_are_added():
    from lightbert.ops.kernels.tiles import sum_programs

    for programs in (0, 1, 600):
        partial = torch.randn(programs, 2, 5, device=DEVICE)
        torch.testing.assert_close(sum_programs(partial, torch.float32), partial.sum(0), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("programs", "width"), [(0, 5), (1, 16), (3, 16), (600, 5)])
def test_the_last_sums_over_programs_may_have_another_type(programs, width):
    from lightbert.ops.kernels.tiles import sum_programs, sum_programs_apart

    partial = torch.randn(programs, 3 * width + 2, device=DEVICE)
    first, last = sum_programs_apart(partial, torch.Size([3, width]), torch.float32, HALF)
    together = sum_programs(partial, torch.float32)
    assert torch.equal(first.flatten(), together[:-2])
    assert torch.equal(last, together[-2:].to(HALF))


def test_a_constant_token_is_normalized_to_the_bias():
    given = {name: value.to(DEVICE, torch.float32) for name, value in norm_inputs(2, 3, 64).items()}
    given |= {"x": torch.full((2, 3, 64), 1e4, device=DEVICE), "change": torch.zeros(2, 3, 64, device=DEVICE)}
    torch.testing.assert_close(by_kernel(norm)(**given), given["bias"].expand(2, 3, 64))


def test_the_sum_has_gradients_in_the_types_of_its_parts():
    """The first block may get a float32 stream from the embeddings."""
    given = norm_inputs(2, 5, 32)
    x = given["x"].to(DEVICE, torch.float32).requires_grad_()
    change = given["change"].to(DEVICE, HALF).requires_grad_()
    weight, bias = (given[name].to(DEVICE, torch.float32) for name in ("weight", "bias"))
    with using("triton"), torch.autocast(DEVICE, dtype=HALF):
        out = norm(x, change, weight, bias)
    assert out.dtype is HALF
    out.sum().backward()
    assert (x.grad.dtype, change.grad.dtype) == (torch.float32, HALF)
    expected = norm(x.detach().double(), change.detach().double(), weight.double(), bias.double())
    rounding = torch.finfo(HALF).eps
    torch.testing.assert_close(out.double(), expected, rtol=rounding, atol=rounding)


def test_the_bias_of_the_change_may_have_another_type_than_the_norm():
    """In training the linear layers have half-precision copies of their parameters, and norms have their own."""
    given = {name: value.to(DEVICE, HALF) for name, value in biased_inputs(2, 5, 32).items()}
    leaves = {name: value.float() if name in ("weight", "bias") else value for name, value in given.items()}
    leaves = {name: value.requires_grad_() for name, value in leaves.items()}
    out = by_kernel(norm)(**leaves)
    direction = torch.randn(out.shape, device=DEVICE).to(HALF)
    out.backward(direction)
    assert all(leaf.grad.dtype is leaf.dtype for leaf in leaves.values())
    exact = {name: value.detach().double().requires_grad_() for name, value in given.items()}
    norm(**exact).backward(direction.double())
    rounding = 4 * torch.finfo(HALF).eps
    for name, leaf in leaves.items():
        torch.testing.assert_close(leaf.grad.double(), exact[name].grad, rtol=rounding, atol=rounding)


def test_the_bias_is_added_to_the_change_before_the_sum_is_rounded():
    """A change of 1 and a bias of 1/4096 have the sum 1 in half precision; a norm shows the difference."""
    change = torch.ones(1, 64, device=DEVICE, dtype=HALF)
    bias = (torch.arange(64, device=DEVICE) % 2 / 4096).to(HALF)
    x, weight, shift = torch.zeros_like(change), torch.ones_like(bias), torch.zeros_like(bias)
    out = by_kernel(norm)(x=x, change=change, weight=weight, bias=shift, change_bias=bias)
    torch.testing.assert_close(out.float(), (torch.arange(64, device=DEVICE) % 2 * 2.0 - 1)[None])


@pytest.mark.parametrize("trained", ["x", "change", "weight", "bias", "change_bias"])
def test_the_gradient_of_one_input_is_the_same_if_the_others_need_none(trained):
    given = {name: value.to(DEVICE, torch.float32) for name, value in biased_inputs(2, 5, 12).items()}
    found = []
    for names in ([trained], given):
        leaves = {name: value.clone().requires_grad_(name in names) for name, value in given.items()}
        by_kernel(norm)(**leaves).square().sum().backward()
        assert all((leaf.grad is not None) == leaf.requires_grad for leaf in leaves.values())
        found.append(leaves[trained].grad)
    assert torch.equal(*found)


@pytest.mark.parametrize("value", [-100.0, -12.0, -5.0, -0.0, 0.0, 5.0, 100.0])
def test_gelu_is_accurate_far_from_zero(value):
    x = torch.full((3, 4), value, device=DEVICE)
    out = by_kernel(bias_gelu)(x=x, bias=torch.zeros(4, device=DEVICE))
    torch.testing.assert_close(out.double(), torch.nn.functional.gelu(x.double()), rtol=1e-6, atol=1e-7)


def test_gelu_has_a_small_relative_error_far_below_zero():
    """As small as the rounding of half precision, where 1 + erf has no correct digit."""
    given = {"x": torch.linspace(-9, -2, 1024, dtype=torch.float64)[:, None], "bias": torch.zeros(1)}
    out, of_x, _ = results(by_kernel(bias_gelu), given, torch.float32, spread=False)
    exact = torch.special.log_ndtr(given["x"]).exp()
    torch.testing.assert_close(out, given["x"] * exact, rtol=3e-4, atol=0)
    leaf = given["x"].clone().requires_grad_()
    torch.manual_seed(1)
    direction = torch.randn(leaf.shape, dtype=torch.float64).bfloat16().double()
    (torch.special.log_ndtr(leaf).exp() * leaf).backward(direction)
    torch.testing.assert_close(of_x, leaf.grad, rtol=3e-4, atol=0)


# The interpreter computes with NumPy, which warns of infinity.
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("sign", [-1, 1])
def test_gelu_of_huge_numbers_is_finite(sign):
    x = torch.full((2, 3), sign * 3e38, device=DEVICE, requires_grad=True)
    out = by_kernel(bias_gelu)(x=x, bias=torch.zeros(3, device=DEVICE))
    out.sum().backward()
    assert torch.equal(out, x.clamp(min=0))
    assert torch.equal(x.grad, (x > 0).float())


@pytest.mark.parametrize("tokens", [64, 60])
def test_block_sizes_change_gelu_only_in_the_sum_for_the_bias(tokens):
    from lightbert.ops.kernels import bias_gelu as kernel

    x, grad = (draw(tokens, 256).to(DEVICE, torch.float32) for _ in range(2))
    bias = draw(256).to(DEVICE, torch.float32)
    usual, of_bias = kernel.backward(grad, x, bias)
    for block_tokens, stages in ((2, 1), (8, 3), (16, 2)):
        found, sums = kernel.backward(grad, x, bias, block_tokens=block_tokens, stages=stages, programs=2)
        assert torch.equal(found, usual)
        torch.testing.assert_close(sums, of_bias, rtol=1e-5, atol=1e-4)
        assert torch.equal(kernel.forward(x, bias, block_tokens=block_tokens), kernel.forward(x, bias))


def test_torch_accepts_the_custom_ops(case):
    """Schema, fake tensors, autograd registration and tracing, by torch's own checks."""
    op, inputs = case
    tensors = {name: value.to(DEVICE, torch.float32).requires_grad_() for name, value in inputs(2, 3, 12).items()}
    added = {name: tensors.pop(name) for name in ("change_bias",) if name in tensors}
    gelu = {bias_gelu: bias_gelu_operator, gelu_linear: gelu_linear_operator, gelu_score: gelu_score_operator}
    custom = residual_norm_operator if op is norm else gelu[op]
    settings = [EPS] if op is norm else []
    torch.library.opcheck(custom, (*tensors.values(), *settings), added, rtol=1e-4, atol=1e-4)


def test_activations_are_computed_again_with_the_same_bits():
    from lightbert.ops.kernels import bias_gelu as kernel

    x, grad = (draw(60, 256).to(DEVICE, HALF) for _ in range(2))
    bias = draw(256).to(DEVICE, HALF)
    activated = torch.full_like(x, torch.nan)
    found = kernel.backward(grad, x, bias, activated)
    assert torch.equal(activated, kernel.forward(x, bias))
    assert all(torch.equal(one, other) for one, other in zip(found, kernel.backward(grad, x, bias), strict=True))


def test_a_linear_layer_after_gelu_keeps_no_activations():
    given = {name: value.to(DEVICE, HALF).requires_grad_() for name, value in linear_inputs(5, 16).items()}
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        by_kernel(gelu_linear)(**given)
    assert {tensor.data_ptr() for tensor in kept} <= {tensor.data_ptr() for tensor in given.values()}


@pytest.mark.parametrize("dropout", [0.0, 0.25])
@pytest.mark.parametrize("shape", [(3, 11, 7), (2, 64, 64), (2, 64, 256)], ids=str)
def test_the_gradient_of_a_norm_may_have_two_parts(shape, dropout):
    """With and without masks: whole blocks of tokens and channels don't need them."""
    from lightbert.ops.kernels import residual_norm as kernel

    x, change, weight, bias, change_bias, one, other = (
        value.to(DEVICE, torch.float32) for value in (*biased_inputs(*shape).values(), draw(*shape), draw(*shape))
    )
    seed = torch.tensor([7], device=DEVICE) if dropout else None
    _, *statistics = kernel.forward(x, change, weight, bias, EPS, seed, dropout, change_bias)
    given = (x, change, weight, *statistics, seed, dropout, change_bias)
    whole, parts = kernel.backward(one + other, *given), kernel.backward(one, *given, other)
    assert (parts[1] is None) == (whole[1] is None) == (not dropout)
    # Two kernels may fuse multiplications with additions in different ways: the last results are sums over all tokens.
    tokens = shape[0] * shape[1]
    for found, expected, terms in zip(parts, whole, (1, 1, tokens, tokens), strict=True):
        if expected is not None:
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=max(1e-6, terms * 2**-24))
