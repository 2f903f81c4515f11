"""Residual connection and layer norm against their definition."""

import torch
from gradients import assert_same_with_gradients, draw

from lightbert.ops.residual_norm import residual_norm


def test_the_sum_is_normalized_over_its_channels():
    def naive(x, change, weight, bias):
        total = x + change
        centred = total - total.mean(-1, keepdim=True)
        return centred / (total.var(-1, correction=0, keepdim=True) + 1e-3).sqrt() * weight + bias

    inputs = {"x": draw(2, 3, 5), "change": draw(2, 3, 5), "weight": draw(5), "bias": draw(5)}
    assert_same_with_gradients(lambda **given: residual_norm(**given, eps=1e-3), naive, inputs)
    biased = inputs | {"change_bias": draw(5)}
    assert_same_with_gradients(
        lambda **given: residual_norm(**given, eps=1e-3),
        lambda x, change, weight, bias, change_bias: naive(x, change + change_bias, weight, bias),
        biased,
    )


def test_the_bias_of_the_change_is_added_before_dropout():
    shape = (64, 32)
    x, change, bias = torch.zeros(shape), torch.zeros(shape), torch.arange(1.0, 33.0)
    given = {"weight": torch.ones(32), "bias": torch.zeros(32), "eps": 0.0, "dropout": 0.5}
    torch.manual_seed(0)
    found = residual_norm(x, change, **given, change_bias=bias)
    torch.manual_seed(0)
    expected = torch.nn.functional.layer_norm(torch.nn.functional.dropout(bias.expand(shape), 0.5), (32,), eps=0.0)
    torch.testing.assert_close(found, expected)


def test_half_precision_is_summed_in_the_precision_of_the_stream():
    x, change = torch.ones(1, 4), torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.bfloat16) / 1024
    out = residual_norm(x, change, torch.ones(4), torch.zeros(4), 0.0)
    torch.testing.assert_close(out, torch.tensor([[-3.0, -1.0, 1.0, 3.0]]) / 5**0.5, rtol=1e-3, atol=1e-3)
