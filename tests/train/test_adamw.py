"""AdamW with and without bias correction."""

import copy

import pytest
import torch
from small_models import Parts, give_gradients, optimizers_of, values

from lightbert.train.optim import is_decayed


@pytest.mark.parametrize("kind", ["adamw", "flat"])
def test_without_bias_correction_it_equals_electras_adam(kind: str) -> None:
    model = Parts()
    optimizers = optimizers_of(model, 0.1, kind=kind, weight_decay=0.01)
    expected = {name: value.double() for name, value in values(model).items()}
    means = {name: torch.zeros_like(value) for name, value in expected.items()}
    squares = {name: torch.zeros_like(value) for name, value in expected.items()}
    for step in range(3):
        gradients = give_gradients(model, seed=step)
        for name, w in expected.items():
            g = gradients[name].double()
            means[name] = 0.9 * means[name] + 0.1 * g
            squares[name] = 0.999 * squares[name] + 0.001 * g * g
            update = means[name] / (squares[name].sqrt() + 1e-6)
            decayed = not name.endswith("bias") and "norm" not in name
            expected[name] = w - 0.1 * (update + (0.01 * w if decayed else 0))
        optimizers.step()
    for name, value in values(model).items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["adamw", "flat"])
def test_with_bias_correction_it_equals_pytorchs_adamw(kind: str) -> None:
    model, other = Parts(), Parts()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    optimizers = optimizers_of(model, 0.1, kind=kind, bias_correction=True, weight_decay=0.0, eps=1e-8)
    reference = torch.optim.AdamW(other.parameters(), lr=0.1, eps=1e-8, weight_decay=0.0)
    for step in range(3):
        give_gradients(model, seed=step)
        give_gradients(other, seed=step)
        optimizers.step()
        reference.step()
    for name, value in values(model).items():
        torch.testing.assert_close(value, values(other)[name], rtol=1e-5, atol=1e-6)


def test_weight_decay_applies_to_everything_except_biases_and_norms() -> None:
    decayed = [
        "embeddings.word.weight",
        "embeddings.project.weight",
        "blocks.0.mixer.convolution.depthwise.weight",
        "blocks.0.mixer.convolution.kernel.weight",
        "blocks.0.mixer.fixed",
        "heads.mlm.extra",
    ]
    spared = [
        "embeddings.norm.weight",
        "blocks.0.enter_norm.weight",
        "blocks.0.feedforward.1.norm.bias",
        "blocks.0.mixer.depthwise.bias",
        "heads.mlm.norm.weight",
        "heads.mlm.bias",
    ]
    assert [name for name in (*decayed, *spared) if is_decayed(name)] == decayed


def test_the_rate_can_change_between_steps_and_a_rate_of_zero_changes_only_the_moments() -> None:
    model = Parts()
    optimizers = optimizers_of(model, 0.0)
    before = values(model)
    give_gradients(model, seed=0)
    optimizers.step()
    assert all(torch.equal(value, before[name]) for name, value in values(model).items())
    assert all(state.any() for name, state in optimizers.tensors().items() if name.endswith("exp_avg"))
    optimizers.set_rate(0.1)
    optimizers.step()
    assert not any(torch.equal(value, before[name]) for name, value in values(model).items())


def test_gradients_above_the_maximum_norm_are_clipped_together_and_others_are_unchanged() -> None:
    model = Parts()
    optimizers = optimizers_of(model, clip=1.0)
    gradients = give_gradients(model, seed=0, size=10.0)
    size = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
    norm, finite = optimizers.step()
    torch.testing.assert_close(norm, size)
    assert finite
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name] / size, rtol=1e-4, atol=1e-6)
    gradients = give_gradients(model, seed=0, size=0.01)
    optimizers.step()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.grad, gradients[name])


def test_a_clip_of_zero_disables_clipping() -> None:
    model = Parts()
    optimizers = optimizers_of(model, clip=0.0)
    before, gradients = values(model), give_gradients(model, seed=0, size=10.0)
    norm, finite = optimizers.step()
    assert finite
    torch.testing.assert_close(norm, torch.cat([gradient.flatten() for gradient in gradients.values()]).norm())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.grad, gradients[name])
        assert not torch.equal(parameter, before[name])
