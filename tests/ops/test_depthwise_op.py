"""The depthwise convolution against loops over tokens and taps."""

import pytest
import torch
from gradients import SHAPES, TEXTS, assert_same_with_gradients, draw, draw_texts, reads
from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.depthwise import depthwise


def loops(x: Tensor, weight: Tensor, bias: Tensor | None = None, texts: Tensor | None = None) -> Tensor:
    (batch, tokens, channels), kernel = x.shape, weight.shape[1]
    rows = []
    for b in range(batch):
        for t in range(tokens):
            total = x.new_zeros(channels) if bias is None else bias.clone()
            for j in range(kernel):
                source = t + j - kernel // 2
                if reads(texts, b, t, source, tokens):
                    total = total + weight[:, j] * x[b, source]
            rows.append(total)
    return torch.stack(rows).reshape(batch, tokens, channels) if rows else 0 * x


@pytest.mark.parametrize("kernel", [1, 4, 5])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_channel_is_convolved_with_its_own_kernel(shape, kernel):
    inputs = {"x": draw(*shape, 3), "weight": draw(3, kernel)}
    assert_same_with_gradients(depthwise, loops, inputs)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_bias_and_texts_match_the_loops(shape, kind):
    inputs = {"x": draw(*shape, 3), "weight": draw(3, 5), "bias": draw(3)}
    assert_same_with_gradients(depthwise, loops, inputs, texts=draw_texts(kind, *shape))


def test_the_first_tap_reads_the_oldest_token():
    x = torch.arange(4.0)[None, :, None]
    weight = torch.tensor([[1.0, 0.0, 0.0]])
    assert depthwise(x, weight).flatten().tolist() == [0, 0, 1, 2]


def test_half_precision_weights_follow_the_input_type():
    out = depthwise(torch.randn(1, 4, 2, dtype=torch.bfloat16), torch.randn(2, 3), torch.randn(2))
    assert out.dtype is torch.bfloat16


def test_the_error_for_a_wrong_number_of_channels_has_both_numbers():
    with pytest.raises(InputError, match="x must have 3 channels, as the weight, got 4"):
        depthwise(torch.zeros(1, 2, 4), torch.zeros(3, 5))
