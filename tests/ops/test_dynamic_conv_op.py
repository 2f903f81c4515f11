"""The dynamic convolution against loops over tokens, heads and taps."""

import pytest
import torch
from gradients import SHAPES, TEXTS, assert_same_with_gradients, draw, draw_texts, reads
from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.dynamic_conv import dynamic_conv, softmax_within_text


def loops(values: Tensor, logits: Tensor, texts: Tensor | None = None) -> Tensor:
    batch, tokens, n_heads, kernel = logits.shape
    heads = values.reshape(batch, tokens, n_heads, values.shape[-1] // n_heads)
    rows = []
    for b in range(batch):
        for t in range(tokens):
            for h in range(n_heads):
                weights = logits[b, t, h].exp() / logits[b, t, h].exp().sum()
                total = 0 * heads[b, t, h]
                for j in range(kernel):
                    source = t + j - kernel // 2
                    if reads(texts, b, t, source, tokens):
                        total = total + weights[j] * heads[b, source, h]
                rows.append(total)
    return torch.stack(rows).reshape(values.shape) if rows else 0 * values


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("kernel", [1, 4, 5])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_token_and_head_weights_its_window_with_its_own_softmax(shape, kernel, kind):
    inputs = {"values": draw(*shape, 6), "logits": draw(*shape, 2, kernel)}
    assert_same_with_gradients(dynamic_conv, loops, inputs, texts=draw_texts(kind, *shape))


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("shape", [(2, 1), (2, 3), (3, 11)], ids=str)
def test_the_softmax_within_a_text_sums_to_one_over_the_taps_inside_it(shape, kind):
    texts, logits = draw_texts(kind, *shape), draw(*shape, 2, 5)
    weights = softmax_within_text(logits, texts)
    batch, tokens = shape
    for b in range(batch):
        for t in range(tokens):
            counted = [j for j in range(5) if j == 2 or reads(texts, b, t, t + j - 2, tokens)]
            expected = torch.zeros(2, 5, dtype=torch.float64)
            expected[:, counted] = logits[b, t][:, counted].softmax(-1)
            torch.testing.assert_close(weights[b, t], expected)


def test_large_half_precision_logits_stay_finite():
    logits = torch.full((1, 3, 2, 5), 3e4, dtype=torch.bfloat16)
    out = dynamic_conv(torch.ones(1, 3, 4, dtype=torch.bfloat16), logits)
    assert out.dtype is torch.bfloat16
    torch.testing.assert_close(out[0, 1, 0].float(), torch.tensor(0.6), rtol=0.02, atol=0)


def test_the_heads_must_divide_the_width_of_the_values():
    with pytest.raises(InputError, match=r"heads \(3\) must divide the width of the values, 4"):
        dynamic_conv(torch.zeros(1, 2, 4), torch.zeros(1, 2, 3, 5))
