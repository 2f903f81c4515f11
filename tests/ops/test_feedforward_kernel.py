"""The kernel of MobileBERT's feed-forward against fp64: widths, numbers of tokens, every gradient."""

from functools import partial

import pytest
import torch
from gradients import draw
from kernels import DEVICE, HALF, MARKS, assert_exact, assert_no_coarser, by_kernel, results
from torch import Tensor

from lightbert.ops.backend import using
from lightbert.ops.relu_feedforward import has_kernel, relu_feedforward, relu_feedforward_operator

pytest.importorskip("triton", reason="kernels need the extra 'kernels'")
pytestmark = [*MARKS, pytest.mark.usefixtures("poisoned")]

kernel = by_kernel(relu_feedforward)


def inputs(*shape: int, inner: int = 48) -> dict[str, Tensor]:
    width = shape[-1]
    return {
        "x": draw(*shape),
        "up": draw(inner, width) / width**0.5,
        "up_bias": draw(inner),
        "down": draw(width, inner) / inner**0.5,
        "down_bias": draw(width),
        "scale": draw(width),
        "shift": draw(width),
    }


@pytest.mark.parametrize(("width", "inner"), [(16, 16), (16, 80), (32, 96), (64, 64), (128, 512)])
def test_every_width_is_exact_in_single_precision(width, inner):
    assert_exact(kernel, relu_feedforward, inputs(1, 3, width, inner=inner))


@pytest.mark.parametrize("tokens", [1, 37, 128, 131])
def test_the_rounding_error_is_at_most_twice_the_reference(tokens):
    assert_no_coarser(kernel, relu_feedforward, inputs(tokens, 32, inner=128))


@pytest.mark.parametrize("shape", [(1, 1), (1, 67), (3, 23), (131,), (2, 3, 4), (128,)], ids=str)
def test_any_number_of_tokens_is_supported(shape):
    assert_exact(kernel, relu_feedforward, inputs(*shape, 16))


@pytest.mark.parametrize("shape", [(0, 5, 16), (2, 0, 16)], ids=str)
def test_no_tokens_give_an_empty_result_and_gradients_of_zero(shape):
    out, *gradients = results(kernel, inputs(*shape), torch.float32, spread=False)
    assert out.shape == shape
    assert all((gradient == 0).all() for gradient in gradients)


def test_tensors_may_have_any_memory_layout():
    assert_exact(kernel, relu_feedforward, inputs(3, 11, 32), spread=True)


def test_results_are_equal_in_every_run():
    given = inputs(41, 7, 32)
    runs = [results(kernel, given, HALF, spread=False) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


def test_a_scale_of_zero_has_a_gradient():
    assert_exact(kernel, relu_feedforward, inputs(2, 5, 16) | {"scale": torch.zeros(16, dtype=torch.float64)})


def test_parameters_may_have_other_types_than_the_states():
    """Under autocast states and weights have half precision, and a scale has its own."""
    given = {name: value.to(DEVICE, HALF) for name, value in inputs(2, 5, 32).items()}
    leaves = {name: value.float() if name in ("scale", "shift", "up_bias") else value for name, value in given.items()}
    leaves = {name: value.requires_grad_() for name, value in leaves.items()}
    out = kernel(**leaves)
    assert out.dtype is HALF
    direction = torch.randn(out.shape, device=DEVICE).to(HALF)
    out.backward(direction)
    assert all(leaf.grad.dtype is leaf.dtype for leaf in leaves.values())
    exact = {name: value.detach().double().requires_grad_() for name, value in given.items()}
    relu_feedforward(**exact).backward(direction.double())
    rounding = 8 * torch.finfo(HALF).eps
    for name, leaf in leaves.items():
        torch.testing.assert_close(leaf.grad.double(), exact[name].grad, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("trained", ["x", "up", "up_bias", "down", "down_bias", "scale", "shift"])
def test_the_gradient_of_one_input_is_the_same_if_the_others_need_none(trained):
    given = {name: value.to(DEVICE, torch.float32) for name, value in inputs(2, 5, 16).items()}
    found = []
    for names in (given, [trained]):
        leaves = {name: value.clone().requires_grad_(name in names) for name, value in given.items()}
        kernel(**leaves).square().sum().backward()
        found.append(leaves[trained].grad)
    assert torch.equal(*found)


@pytest.mark.parametrize(
    ("width", "inner", "fits"), [(128, 512, True), (24, 48, False), (256, 512, False), (32, 24, False)]
)
def test_other_widths_are_left_to_the_reference(width, inner, fits):
    with using("triton"):
        assert has_kernel(torch.zeros(2, width, device=DEVICE), inner) == fits


def test_the_operator_passes_pytorchs_own_checks():
    given = [value.to(DEVICE, torch.float32).requires_grad_() for value in inputs(2, 5, 16).values()]
    checks = partial(torch.library.opcheck, relu_feedforward_operator, tuple(given))
    checks(test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))
