"""Bias and GELU against their definition."""

import torch
from gradients import assert_same_with_gradients, draw

from lightbert.ops.bias_gelu import bias_gelu


def test_gelu_is_applied_to_the_sum():
    def naive(x, bias):
        total = x + bias
        return total * (1 + torch.erf(total / 2**0.5)) / 2

    assert_same_with_gradients(bias_gelu, naive, {"x": draw(2, 3, 5), "bias": draw(5)})
