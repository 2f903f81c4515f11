"""Samples follow the softmax and stay in the vocabulary."""

import torch

from lightbert.ops.sampling import sample


def test_samples_follow_the_softmax():
    logits = torch.tensor([2.0, 0.0, -1.0, 1.0])
    chances = (torch.arange(40_000) + 0.5) / 40_000
    drawn = sample(logits.expand(40_000, 4), chances)
    shares = torch.bincount(drawn, minlength=4) / 40_000
    torch.testing.assert_close(shares, torch.softmax(logits, -1), atol=1e-4, rtol=0)


def test_a_sample_stays_in_the_vocabulary_at_the_ends_of_the_unit_interval():
    logits = torch.randn(3, 1000) * 10
    assert sample(logits, torch.tensor([0.0, 1.0, 1 - 2**-24])).max() < 1000
