"""Cross-entropy against its definition."""

import pytest
import torch
from gradients import assert_same_with_gradients, draw

from lightbert.ops.cross_entropy import cross_entropy


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (0, 4)], ids=str)
def test_the_loss_is_minus_the_log_probability_of_the_target(shape):
    targets = torch.randint(0, 7, shape)

    def shares(logits):
        exponentials = logits.exp()
        return -(exponentials.gather(-1, targets[..., None])[..., 0] / exponentials.sum(-1)).log()

    assert_same_with_gradients(lambda logits: cross_entropy(logits, targets)[0], shares, {"logits": draw(*shape, 7)})


def test_the_most_likely_entry_has_the_largest_logit():
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, -1.0, 1.0]])
    assert cross_entropy(logits, torch.tensor([0, 0]))[1].tolist() == [1, 0]


def test_half_precision_logits_are_summed_in_single_precision():
    logits = torch.zeros(1, 4096, dtype=torch.bfloat16)
    loss, _, _ = cross_entropy(logits, torch.tensor([7]))
    assert loss.dtype is torch.float32
    torch.testing.assert_close(loss, torch.tensor([4096.0]).log())
