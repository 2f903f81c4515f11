"""`papers.convbert`, compared with numbers worked out by hand."""

import math

import pytest
import torch
from torch import Tensor, tensor

from lightbert.papers.convbert import (
    depthwise_convolution,
    dynamic_convolution,
    feedforward,
    grouped_linear,
    light_convolution,
    mixed_attention,
    separable_convolution,
    span_convolution,
)

THREE = tensor([[[1.0], [10.0], [100.0]]])
ALL = tensor([[True, True, True]])
LAST_PADDED = tensor([[True, True, False]])


def identity(width: int, name: str) -> dict[str, Tensor]:
    return {f"{name}.weight": torch.eye(width), f"{name}.bias": torch.zeros(width)}


def test_tap_zero_of_a_depthwise_convolution_reads_the_token_before() -> None:
    out = depthwise_convolution(THREE, tensor([[2.0, 3.0, 5.0]]))
    assert out.flatten().tolist() == [3 + 50, 2 + 30 + 500, 20 + 300]


def test_a_depthwise_convolution_does_not_mix_channels_and_adds_its_bias() -> None:
    x = tensor([[[1.0, 1.0], [10.0, 20.0]]])
    out = depthwise_convolution(x, tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), tensor([0.5, 0.25]))
    assert out.tolist() == [[[1.5, 0.25], [10.5, 1.25]]]


def test_a_light_convolution_uses_the_taps_of_the_output_token() -> None:
    taps = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]).reshape(1, 1, 3, 3)
    out = light_convolution(THREE[:, None], taps)
    assert out.flatten().tolist() == [2 + 30, 4 + 50 + 600, 70 + 800]


def test_a_separable_convolution_reads_zeros_at_padding() -> None:
    weights = {
        "depthwise.weight": tensor([[2.0, 3.0, 5.0]]),
        "pointwise.weight": tensor([[1.0], [-1.0]]),
        "pointwise.bias": tensor([0.0, 7.0]),
    }
    assert separable_convolution(weights, THREE, ALL)[0].tolist() == [[53.0, -46.0], [532.0, -525.0], [320.0, -313.0]]
    assert separable_convolution(weights, THREE, LAST_PADDED)[0, :2].tolist() == [[53.0, -46.0], [32.0, -25.0]]


def one_head() -> dict[str, Tensor]:
    """A kernel layer that makes (1, 2, 3)/6 of a source of 1, and (1, 1, 1)/3 of a source of 0."""
    return {
        "depthwise.weight": tensor([[0.0, 0.0, 1.0]]),
        **identity(1, "pointwise"),
        "kernel.weight": tensor([[0.0], [math.log(2.0)], [math.log(3.0)]]),
        "kernel.bias": torch.zeros(3),
        **identity(1, "value"),
    }


def test_a_dynamic_convolution_softmaxes_over_its_taps() -> None:
    # Taps outside the row keep their weight in the softmax.
    source = tensor([[[1.0], [0.0], [1.0]]])
    out = dynamic_convolution(one_head(), THREE, source, ALL, n_heads=1)
    expected = tensor([(2 + 30) / 6, (1 + 10 + 100) / 3, (10 + 200) / 6])
    torch.testing.assert_close(out.flatten(), expected)


def test_a_span_convolution_multiplies_the_query_by_the_span_aware_key() -> None:
    # The depthwise kernel reads the next token, so that the span keys are (10, 100, 0).
    query = tensor([[[0.1], [0.0], [5.0]]])
    out = span_convolution(one_head(), THREE, query, ALL, n_heads=1)
    expected = tensor([(2 + 30) / 6, (1 + 10 + 100) / 3, (10 + 100) / 3])
    torch.testing.assert_close(out.flatten(), expected)


def test_a_span_convolution_reads_padding_neither_in_its_key_nor_in_its_values() -> None:
    # With the third token padded the span keys are (10, 0, 0) and the values (1, 10, 0).
    query = tensor([[[0.1], [0.01], [5.0]]])
    out = span_convolution(one_head(), THREE, query, LAST_PADDED, n_heads=1)
    torch.testing.assert_close(out.flatten()[:2], tensor([(2 + 30) / 6, (1 + 10 + 0) / 3]))


def test_one_kernel_layer_generates_the_kernels_of_all_heads() -> None:
    # The kernel layer reads both channels: the six logits are head 0's taps, then head 1's.
    weights = {
        "kernel.weight": torch.zeros(6, 2),
        "kernel.bias": tensor([0.0, 0.0, 99.0, 99.0, 0.0, 0.0]),
        **identity(2, "value"),
    }
    x = tensor([[[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]])
    out = dynamic_convolution(weights, x, torch.zeros_like(x), ALL, n_heads=2)
    torch.testing.assert_close(out, tensor([[[10.0, 0.0], [100.0, 2.0], [0.0, 20.0]]]))


def constant(width: int, name: str) -> dict[str, Tensor]:
    return {f"{name}.weight": torch.zeros(width, 1), f"{name}.bias": torch.zeros(width)}


def one_head_of_each_kind() -> dict[str, Tensor]:
    """A content head that attends evenly, and a convolution head that reads the token after through its own value."""
    return {
        **constant(1, "query"),
        **constant(1, "key"),
        **identity(1, "value"),
        "convolution.depthwise.weight": tensor([[0.0, 0.0, 1.0]]),
        **identity(1, "convolution.pointwise"),
        "convolution.kernel.weight": torch.zeros(3, 1),
        "convolution.kernel.bias": tensor([0.0, 0.0, 99.0]),
        "convolution.value.weight": tensor([[2.0]]),
        "convolution.value.bias": tensor([1.0]),
    }


@pytest.mark.parametrize(
    ("convolution", "expected"),
    [
        ("span", [[37.0, 21.0], [37.0, 201.0], [37.0, 0.0]]),
        ("dynamic", [[37.0, 21.0], [37.0, 201.0], [37.0, 0.0]]),
        ("conventional", [[37.0, 10.0], [37.0, 100.0], [37.0, 0.0]]),
        ("none", [[37.0], [37.0], [37.0]]),
    ],
)
def test_attention_heads_come_first_and_convolution_heads_second(convolution: str, expected: list[list[float]]) -> None:
    out = mixed_attention(one_head_of_each_kind(), THREE, ALL, ALL, 1, convolution)
    torch.testing.assert_close(out, tensor([expected]))


def test_released_padding_masks_attention_but_not_convolutions() -> None:
    out = mixed_attention(one_head_of_each_kind(), THREE, LAST_PADDED, ALL, 1, "span")
    torch.testing.assert_close(out[:, :2], tensor([[[5.5, 21.0], [5.5, 201.0]]]))


def test_an_unknown_convolution_is_an_error() -> None:
    with pytest.raises(ValueError, match="spam"):
        mixed_attention(one_head_of_each_kind(), THREE, ALL, ALL, 1, "spam")


def test_a_grouped_linear_is_a_block_diagonal_matrix() -> None:
    weight = tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[7.0, 8.0, 9.0], [10.0, 11.0, 12.0]]])
    bias = tensor([0.0, 0.0, 0.0, 0.0, 0.0, 0.5])
    out = grouped_linear(tensor([[[1.0, 10.0, 100.0, 1000.0]]]), weight, bias)
    assert out.tolist() == [[[41.0, 52.0, 63.0, 10700.0, 11800.0, 12900.5]]]


def test_a_grouped_feedforward_never_mixes_its_groups() -> None:
    weights = {
        "up.weight": tensor([[[1.0]], [[-1.0]]]),
        "up.bias": tensor([0.0, 0.0]),
        "down.weight": tensor([[[3.0]], [[5.0]]]),
        "down.bias": tensor([1.0, 2.0]),
    }
    assert feedforward(weights, tensor([[[2.0, 4.0]]]), "relu").tolist() == [[[7.0, 2.0]]]
    dense = {
        **weights,
        "up.weight": tensor([[1.0, 1.0]]),
        "up.bias": tensor([0.0]),
        "down.weight": tensor([[1.0], [2.0]]),
    }
    assert feedforward(dense, tensor([[[2.0, 4.0]]]), "relu").tolist() == [[[7.0, 14.0]]]
