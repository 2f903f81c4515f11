"""A non-finite gradient changes nothing, and restored optimizer state continues exactly."""

import pytest
import torch
from small_models import Parts, give_gradients, optimizers_of, values
from torch import Tensor

from lightbert.train.optim import Optimizers

KINDS = ["adamw", "flat", "lamb", "muon"]


def everything(model: Parts, optimizers: Optimizers) -> dict[str, Tensor]:
    return values(model) | {name: tensor.clone() for name, tensor in optimizers.tensors().items()}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["embeddings.word.weight", "blocks.0.output.weight", "heads.rtd.bias"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_non_finite_gradient_leaves_weights_and_state_bitwise_unchanged(kind: str, where: str, bad: float) -> None:
    model = Parts()
    optimizers = optimizers_of(model, kind=kind, bias_correction=True, clip=1.0)
    give_gradients(model, seed=0)
    optimizers.step()
    before = everything(model, optimizers)
    give_gradients(model, seed=1)
    model.get_parameter(where).grad.view(-1)[1] = bad
    norm, finite = optimizers.step()
    assert not finite
    assert not norm.isfinite()
    after = everything(model, optimizers)
    assert [name for name in before if not torch.equal(before[name], after[name])] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_after_a_skipped_one_is_not_affected_by_it(kind: str) -> None:
    model, other = Parts(), Parts()
    other.load_state_dict(model.state_dict())
    for each, seeds in ((model, [0, None, 1]), (other, [0, 1])):
        optimizers = optimizers_of(each, kind=kind, bias_correction=True, clip=1.0)
        for seed in seeds:
            give_gradients(each, seed=seed or 0)
            if seed is None:
                each.heads["rtd"].bias.grad.fill_(float("nan"))
            optimizers.step()
    assert all(torch.equal(value, values(other)[name]) for name, value in values(model).items())


@pytest.mark.parametrize("kind", KINDS)
def test_restored_state_continues_bitwise_identically(kind: str) -> None:
    model, other = Parts(), Parts()
    first, second = (optimizers_of(each, kind=kind, bias_correction=True) for each in (model, other))
    give_gradients(model, seed=0)
    first.step()
    other.load_state_dict(model.state_dict())
    for name, tensor in second.tensors().items():
        tensor.copy_(first.tensors()[name])
    for each, optimizers in ((model, first), (other, second)):
        give_gradients(each, seed=1)
        optimizers.step()
    ours, theirs = everything(model, first), everything(other, second)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_zero_grad_sets_gradients_to_none() -> None:
    model = Parts()
    optimizers = optimizers_of(model)
    give_gradients(model, seed=0)
    optimizers.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())
