"""The cross-entropy of a linear layer, by a product and the ops over its logits."""

import pytest
import torch
import torch.nn.functional as F
from gradients import assert_same_with_gradients, draw
from torch import Tensor

from lightbert.ops.linear_cross_entropy import linear_cross_entropy

V, D = 7, 4


def inputs() -> dict[str, Tensor]:
    return {"features": draw(2, 3, D), "table": draw(V, D), "bias": draw(V)}


def naive(features: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    logits = torch.einsum("bpd,vd->bpv", features, table) + bias
    return logits.exp().sum(-1).log() - logits.gather(-1, targets[..., None])[..., 0]


@pytest.mark.parametrize("aligned", [False, True], ids=["as it is", "rows filled up"])
def test_the_loss_and_its_gradients(aligned, monkeypatch):
    monkeypatch.setattr("lightbert.ops.linear_cross_entropy.on_gpu", lambda x: aligned)

    def loss(**given: Tensor) -> Tensor:
        return linear_cross_entropy(**given)[0]

    assert_same_with_gradients(loss, naive, inputs(), targets=torch.randint(0, V, (2, 3)))


@pytest.mark.parametrize("aligned", [False, True], ids=["as it is", "rows filled up"])
def test_samples_have_the_probabilities_of_the_entries(aligned, monkeypatch):
    monkeypatch.setattr("lightbert.ops.linear_cross_entropy.on_gpu", lambda x: aligned)
    features, table, bias = inputs().values()
    chances = torch.linspace(0, 1, 10_001)[:-1].expand(2, 3, -1)
    repeated = features[:, :, None].expand(-1, -1, 10_000, -1)
    drawn = linear_cross_entropy(repeated, table, bias, torch.zeros(2, 3, 10_000).long(), chances)[2]
    shares = F.one_hot(drawn, V).double().mean(2)
    torch.testing.assert_close(shares, F.linear(features, table, bias).softmax(-1), rtol=0, atol=2e-4)


def test_a_high_temperature_makes_samples_uniform():
    features, table, bias = inputs().values()
    chances = torch.linspace(0, 1, 701)[:-1].expand(1, -1)
    repeated = features[0, :1, None].expand(-1, 700, -1)
    drawn = linear_cross_entropy(repeated, table, bias, torch.zeros(1, 700).long(), chances, temperature=1e6)[2]
    assert F.one_hot(drawn, V).sum((0, 1)).sub(100).abs().max() <= 1


def test_a_target_is_correct_if_it_is_the_likeliest_entry():
    given = inputs()
    targets = torch.randint(0, V, (2, 3))
    _, correct, drawn = linear_cross_entropy(**given, targets=targets)
    assert torch.equal(correct, F.linear(*given.values()).argmax(-1) == targets)
    assert drawn is None
