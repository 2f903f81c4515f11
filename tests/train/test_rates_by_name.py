"""Each parameter can have its own learning rate multiplier; 0 freezes it."""

import pytest
import torch
from small_models import Parts, give_gradients, optimizers_of, values

KINDS = ["adamw", "flat", "lamb", "muon"]


def by_part(name: str) -> float:
    """Freeze the table, train the block at half the rate."""
    return {"embeddings": 0.0, "blocks": 0.5, "heads": 1.0}[name.split(".")[0]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_rate_multiplier_multiplies_the_update(kind: str) -> None:
    changes = []
    for scales in (lambda name: 1.0, by_part):
        torch.manual_seed(0)
        model = Parts()
        optimizers = optimizers_of(model, kind=kind)
        optimizers.scale(scales)
        optimizers.set_rate(0.1)
        before = values(model)
        give_gradients(model, seed=1)
        optimizers.step()
        changes.append({name: value - before[name] for name, value in values(model).items()})
    plain, scaled = changes
    for name, change in scaled.items():
        torch.testing.assert_close(change, by_part(name) * plain[name], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_parameters_keep_weights_and_state_and_continue_when_unfrozen(kind: str) -> None:
    model = Parts()
    optimizers = optimizers_of(model, kind=kind)
    optimizers.scale(by_part)
    optimizers.set_rate(0.1)
    table, state = model.embeddings.word.weight, {n: t.clone() for n, t in optimizers.tensors().items()}
    before = table.detach().clone()
    assert not table.requires_grad
    for seed in range(3):
        give_gradients(model, seed)
        table.grad = None
        optimizers.step()
    assert torch.equal(table, before)
    resting = [name for name in state if name.startswith("embeddings.word")]
    assert resting
    assert all(torch.equal(optimizers.tensors()[name], state[name]) for name in resting)
    assert optimizers.tensors().keys() == state.keys()

    optimizers.scale(lambda name: 1.0)
    optimizers.set_rate(0.1)
    assert table.requires_grad
    give_gradients(model, seed=9)
    optimizers.step()
    assert not torch.equal(table, before)


def test_a_phase_with_everything_frozen_changes_nothing() -> None:
    model = Parts()
    optimizers = optimizers_of(model)
    optimizers.scale(lambda name: 0.0)
    before = values(model)
    optimizers.set_rate(0.1)
    optimizers.scale(lambda name: 1.0)
    assert all(torch.equal(value, before[name]) for name, value in values(model).items())


def test_a_rate_beyond_the_largest_number_of_a_tensor_is_that_number() -> None:
    optimizers = optimizers_of(Parts())
    optimizers.scale(lambda name: 1e308)
    optimizers.set_rate(1e3)
    assert {rate.item() for rate, _ in optimizers._rates} == {torch.finfo(torch.float32).max}
