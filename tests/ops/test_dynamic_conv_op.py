"""The dynamic convolution against loops over tokens, heads and taps."""

import pytest
import torch
from gradients import SHAPES, assert_same_with_gradients, draw
from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.dynamic_conv import dynamic_conv, window_sum


def loops(values: Tensor, logits: Tensor, window: Tensor | None = None) -> Tensor:
    batch, tokens, n_heads, kernel = logits.shape
    heads = values.reshape(batch, tokens, n_heads, values.shape[-1] // n_heads)
    rows = []
    for b in range(batch):
        for t in range(tokens):
            for h in range(n_heads):
                weights = logits[b, t, h].exp() / logits[b, t, h].exp().sum()
                total = torch.zeros_like(heads[b, t, h])
                for j in range(kernel):
                    source = t + j - kernel // 2
                    if 0 <= source < tokens and (window is None or window[b, t, j]):
                        total = total + weights[j] * heads[b, source, h]
                rows.append(total)
    return torch.stack(rows).reshape(values.shape) if rows else 0 * values


def in_fp64(values: Tensor, logits: Tensor, window: Tensor | None = None) -> Tensor:
    """The op takes its softmax in fp32; its own parts without that, so that gradients compare to the last digit."""
    weights = logits.softmax(-1)
    return window_sum(values, weights if window is None else weights * window.unsqueeze(2))


@pytest.mark.parametrize("kernel", [1, 5])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_token_and_head_mixes_its_window_with_its_own_softmax(shape, kernel):
    inputs = {"values": draw(*shape, 6), "logits": draw(*shape, 2, kernel)}
    assert_same_with_gradients(in_fp64, loops, inputs)


def test_taps_outside_the_window_lose_their_weight():
    inputs = {"values": draw(3, 11, 6), "logits": draw(3, 11, 2, 5)}
    assert_same_with_gradients(in_fp64, loops, inputs, window=torch.rand(3, 11, 5) < 0.6)


@pytest.mark.parametrize("windowed", [False, True])
def test_the_op_itself_agrees_with_the_loops_to_single_precision(windowed):
    values = draw(3, 7, 6).float().requires_grad_()
    logits = (5 * draw(3, 7, 2, 5)).float().requires_grad_()
    window = torch.rand(3, 7, 5) < 0.6 if windowed else None
    out, expected = dynamic_conv(values, logits, window), loops(values.double(), logits.double(), window)
    torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=1e-6)
    direction = torch.randn_like(out)
    gradients = torch.autograd.grad(out, (values, logits), direction)
    expected_gradients = torch.autograd.grad(expected, (values, logits), direction.double())
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-5, atol=1e-5)


def test_large_half_precision_logits_stay_finite():
    logits = torch.full((1, 3, 2, 5), 3e4, dtype=torch.bfloat16)
    out = dynamic_conv(torch.ones(1, 3, 4, dtype=torch.bfloat16), logits)
    assert out.dtype is torch.bfloat16
    torch.testing.assert_close(out[0, 1, 0].float(), torch.tensor(0.6), rtol=0.02, atol=0)


def test_an_even_kernel_is_refused_with_the_next_odd_one():
    with pytest.raises(InputError, match="got 4: use 5"):
        dynamic_conv(torch.zeros(1, 2, 4), torch.zeros(1, 2, 2, 4))


def test_channels_that_the_heads_cannot_share_are_refused_with_both_numbers():
    with pytest.raises(InputError, match="3 kernels cannot share 4 value channels"):
        dynamic_conv(torch.zeros(1, 2, 4), torch.zeros(1, 2, 3, 5))
