"""The grouped linear map against one matrix product per group."""

import pytest
import torch
from gradients import SHAPES, assert_same_with_gradients, draw
from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.grouped_linear import grouped_linear, grouped_product_operator


def blocks(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    groups, inputs, _ = weight.shape
    parts = [x[..., g * inputs : (g + 1) * inputs] @ weight[g] for g in range(groups)]
    return torch.cat(parts, dim=-1) + bias


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_block_of_channels_has_its_own_matrix(shape, groups):
    inputs = {"x": draw(*shape, groups * 5), "weight": draw(groups, 5, 2), "bias": draw(groups * 2)}
    assert_same_with_gradients(grouped_linear, blocks, inputs)


def test_torch_accepts_the_custom_op():
    """Schema, fake tensors, autograd registration and tracing, by torch's own checks."""
    x, weight = draw(2, 7, 15).requires_grad_(), draw(3, 5, 2).requires_grad_()
    torch.library.opcheck(grouped_product_operator, (x, weight))


def test_any_number_of_leading_axes_is_supported():
    weight, bias = torch.randn(2, 3, 4), torch.randn(8)
    for shape in [(6,), (5, 6), (2, 3, 5, 6)]:
        x = torch.randn(*shape)
        torch.testing.assert_close(grouped_linear(x, weight, bias), blocks(x, weight, bias))


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_the_result_has_half_precision_under_autocast_as_that_of_a_linear_layer():
    x, weight, bias = torch.randn(4, 6), torch.randn(2, 3, 4), torch.randn(8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = grouped_linear(x, weight, bias)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), blocks(x, weight, bias), atol=0.05, rtol=0.05)


def test_an_output_block_depends_on_its_input_block_only():
    x, weight, bias = torch.randn(1, 6), torch.randn(2, 3, 4), torch.randn(8)
    changed = x.clone()
    changed[:, 3:] += 1
    before, after = grouped_linear(x, weight, bias), grouped_linear(changed, weight, bias)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.isclose(before[:, 4:], after[:, 4:]).any()


def test_the_error_for_a_wrong_number_of_channels_has_both_numbers():
    with pytest.raises(InputError, match="x must have 2 × 3 channels, as the weight, got 5"):
        grouped_linear(torch.zeros(1, 5), torch.zeros(2, 3, 4), torch.zeros(8))
