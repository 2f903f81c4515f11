"""LAMB as in MobileBERT's code."""

import torch
from small_models import Parts, give_gradients, optimizers_of, values
from torch import nn

from lightbert.train.optim.lamb import Lamb


def test_lamb_equals_the_released_formula_with_its_exclusions() -> None:
    model = Parts()
    optimizers = optimizers_of(model, 0.1, kind="lamb", weight_decay=0.01)
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
            if not name.endswith("bias") and "norm" not in name:
                update = update + 0.01 * w
                update = update * w.norm() / update.norm()
            expected[name] = w - 0.1 * update
        optimizers.step()
    for name, value in values(model).items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-6)


def one_step(weight: list[float], gradient: list[float], **group: object) -> list[float]:
    parameter = nn.Parameter(torch.tensor(weight))
    parameter.grad = torch.tensor(gradient)
    Lamb([{"params": [parameter], **group}], torch.tensor(0.5), (0.9, 0.999), 0.0).step()
    return parameter.tolist()


def test_a_step_equals_a_computation_by_hand() -> None:
    # The first moment is g/10, the root of the second |g|/√1000: the update is √10·sign(g), its length √20. The weight
    # is 5 long, so that the step of 0.5 is 0.5 · 5/√20 · √10 = 2.5/√2 in each direction.
    step = 2.5 / 2**0.5
    torch.testing.assert_close(one_step([3.0, 4.0], [0.2, -7.0]), [3 - step, 4 + step], rtol=1e-5, atol=0)


def test_the_trust_ratio_is_one_if_the_weight_or_the_update_is_zero() -> None:
    root = 10**0.5
    torch.testing.assert_close(one_step([0.0, 0.0], [2.0, -2.0]), [-0.5 * root, 0.5 * root], rtol=1e-5, atol=0)
    assert one_step([3.0, 4.0], [0.0, 0.0], eps=1e-6) == [3.0, 4.0]


def test_a_group_that_is_not_scaled_takes_a_plain_adam_step() -> None:
    root = 10**0.5
    after = one_step([3.0, 4.0], [2.0, -2.0], scaled=False)
    torch.testing.assert_close(after, [3 - 0.5 * root, 4 + 0.5 * root], rtol=1e-5, atol=0)


def test_matrices_without_weight_decay_are_scaled_too() -> None:
    model = Parts()
    optimizers = optimizers_of(model, 0.1, kind="lamb", weight_decay=0.0)
    before = values(model)
    give_gradients(model, seed=0)
    optimizers.step()
    name = "blocks.0.output.weight"
    change = values(model)[name] - before[name]
    torch.testing.assert_close(change.norm(), 0.1 * before[name].norm())


def test_a_parameter_without_gradient_is_unchanged() -> None:
    model = Parts()
    optimizers = optimizers_of(model, kind="lamb")
    before = values(model)
    give_gradients(model, seed=0)
    model.heads["rtd"].weight.grad = None
    optimizers.step()
    after = values(model)
    assert [name for name in after if torch.equal(after[name], before[name])] == ["heads.rtd.weight"]
