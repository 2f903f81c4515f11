"""AdamW, LAMB and Muon: their formulas, clipping, rates by parameter, skipped steps, and state that is restored."""

import copy
from itertools import product

import pytest
import torch
from small_models import Parts, give_gradients, optimizers_of, values
from torch import nn

from lightbert.train.optim import Lamb, Muon, is_decayed

KINDS = ["adamw", "flat", "lamb", "muon"]
MATRIX = "blocks.0.output.weight"


def two_models():
    """Return two models with the same weights."""
    model, other = Parts(), Parts()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    return model, other


def everything(model, optimizers):
    return values(model) | {name: tensor.clone() for name, tensor in optimizers.tensors().items()}


def changed(before, after):
    return [name for name in before if not torch.equal(before[name], after[name])]


@pytest.mark.parametrize("kind", ["adamw", "flat", "lamb"])
def test_steps_equal_the_released_formulas_of_electra_and_of_mobilebert(kind):
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
            if not name.endswith("bias") and "norm" not in name:
                update = update + 0.01 * w
                update = update * w.norm() / update.norm() if kind == "lamb" else update
            expected[name] = w - 0.1 * update
        optimizers.step()
    for name, value in values(model).items():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["adamw", "flat"])
def test_with_bias_correction_adamw_equals_pytorchs(kind):
    model, other = two_models()
    optimizers = optimizers_of(model, 0.1, kind=kind, bias_correction=True, weight_decay=0.0, eps=1e-8)
    reference = torch.optim.AdamW(other.parameters(), lr=0.1, eps=1e-8, weight_decay=0.0)
    for step in range(3):
        give_gradients(model, seed=step)
        give_gradients(other, seed=step)
        optimizers.step()
        reference.step()
    for name, value in values(model).items():
        torch.testing.assert_close(value, values(other)[name], rtol=1e-5, atol=1e-6)


def test_weight_decay_applies_to_everything_except_biases_and_norms():
    decayed = [
        *("embeddings.word.weight", "embeddings.project.weight", "blocks.0.mixer.convolution.depthwise.weight"),
        *("blocks.0.mixer.convolution.kernel.weight", "blocks.0.mixer.fixed", "heads.mlm.extra"),
    ]
    spared = [
        *("embeddings.norm.weight", "blocks.0.enter_norm.weight", "blocks.0.feedforward.1.norm.bias"),
        *("blocks.0.mixer.depthwise.bias", "heads.mlm.norm.weight", "heads.mlm.bias"),
    ]
    assert [name for name in (*decayed, *spared) if is_decayed(name)] == decayed


def test_the_rate_can_change_between_steps_and_a_rate_of_zero_changes_only_the_moments():
    model = Parts()
    optimizers = optimizers_of(model, 0.0)
    before = values(model)
    give_gradients(model, seed=0)
    optimizers.step()
    assert changed(before, values(model)) == []
    assert all(state.any() for name, state in optimizers.tensors().items() if name.endswith("exp_avg"))
    optimizers.set_rate(0.1)
    optimizers.step()
    assert changed(before, values(model)) == [*before]
    optimizers.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_gradients_above_the_maximum_norm_are_clipped_together_and_others_are_unchanged():
    model = Parts()
    for clip, size in ((1.0, 10.0), (1.0, 0.01), (0.0, 10.0)):
        optimizers = optimizers_of(model, clip=clip)
        before, gradients = values(model), give_gradients(model, seed=0, size=size)
        total = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
        norm, finite = optimizers.step()
        assert finite
        torch.testing.assert_close(norm, total)
        for name, parameter in model.named_parameters():
            if clip == 1.0 and size == 10.0:
                torch.testing.assert_close(parameter.grad, gradients[name] / total, rtol=1e-4, atol=1e-6)
            else:
                assert torch.equal(parameter.grad, gradients[name]), (clip, size, name)
        assert changed(before, values(model)) == [*before]


@pytest.mark.parametrize("kind", KINDS)
def test_a_non_finite_gradient_leaves_weights_and_state_bitwise_unchanged(kind):
    places, numbers = ("embeddings.word.weight", MATRIX, "heads.rtd.bias"), (float("nan"), float("inf"), -float("inf"))
    for where, bad in product(places, numbers):
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
        assert changed(before, everything(model, optimizers)) == [], (where, bad)


@pytest.mark.parametrize("kind", KINDS)
def test_a_skipped_step_and_restored_state_leave_the_next_steps_bitwise_equal(kind):
    model, other = two_models()
    for trained, seeds in ((model, [0, None, 1]), (other, [0, 1])):
        optimizers = optimizers_of(trained, kind=kind, bias_correction=True, clip=1.0)
        for seed in seeds:
            give_gradients(trained, seed=seed or 0)
            if seed is None:
                trained.heads["rtd"].bias.grad.fill_(float("nan"))
            optimizers.step()
    assert changed(values(model), values(other)) == []

    model, other = two_models()
    first, second = (optimizers_of(trained, kind=kind, bias_correction=True) for trained in (model, other))
    give_gradients(model, seed=0)
    first.step()
    other.load_state_dict(model.state_dict())
    for name, tensor in second.tensors().items():
        tensor.copy_(first.tensors()[name])
    for trained, optimizers in ((model, first), (other, second)):
        give_gradients(trained, seed=1)
        optimizers.step()
    assert changed(everything(model, first), everything(other, second)) == []


def by_part(name):
    """Freeze the table, train the block at half the rate."""
    return {"embeddings": 0.0, "blocks": 0.5, "heads": 1.0}[name.split(".")[0]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_rate_multiplier_multiplies_the_update(kind):
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
def test_frozen_parameters_keep_weights_and_state_and_continue_when_unfrozen(kind):
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
    frozen = [name for name in state if name.startswith("embeddings.word")]
    assert frozen
    assert all(torch.equal(optimizers.tensors()[name], state[name]) for name in frozen)
    assert optimizers.tensors().keys() == state.keys()

    optimizers.scale(lambda name: 1.0)
    optimizers.set_rate(0.1)
    assert table.requires_grad
    give_gradients(model, seed=9)
    optimizers.step()
    assert not torch.equal(table, before)


def test_a_phase_with_everything_frozen_changes_nothing_and_a_rate_is_at_most_the_largest_number():
    model = Parts()
    optimizers = optimizers_of(model)
    before = values(model)
    optimizers.scale(lambda name: 0.0)
    optimizers.set_rate(0.1)
    optimizers.scale(lambda name: 1.0)
    assert changed(before, values(model)) == []
    optimizers.scale(lambda name: 1e308)
    optimizers.set_rate(1e3)
    assert {rate.item() for rate, _ in optimizers._rates} == {torch.finfo(torch.float32).max}


def lamb_step(weight, gradient, **group):
    parameter = nn.Parameter(torch.tensor(weight))
    parameter.grad = torch.tensor(gradient)
    Lamb([{"params": [parameter], **group}], torch.tensor(0.5), (0.9, 0.999), 0.0).step()
    return parameter.tolist()


def test_a_step_of_lamb_equals_a_computation_by_hand():
    # The first moment is g/10, the root of the second |g|/√1000: the update is √10·sign(g), its length √20. The weight
    # is 5 long, so that the step of 0.5 is 0.5 · 5/√20 · √10 = 2.5/√2 in each direction.
    step, root = 2.5 / 2**0.5, 10**0.5
    torch.testing.assert_close(lamb_step([3.0, 4.0], [0.2, -7.0]), [3 - step, 4 + step], rtol=1e-5, atol=0)
    # The trust ratio is 1 if the weight or the update is zero, and in a group that is not scaled.
    torch.testing.assert_close(lamb_step([0.0, 0.0], [2.0, -2.0]), [-0.5 * root, 0.5 * root], rtol=1e-5, atol=0)
    assert lamb_step([3.0, 4.0], [0.0, 0.0], eps=1e-6) == [3.0, 4.0]
    plain = lamb_step([3.0, 4.0], [2.0, -2.0], scaled=False)
    torch.testing.assert_close(plain, [3 - 0.5 * root, 4 + 0.5 * root], rtol=1e-5, atol=0)


def test_lamb_scales_matrices_without_weight_decay_and_leaves_parameters_without_gradient():
    model = Parts()
    optimizers = optimizers_of(model, 0.1, kind="lamb", weight_decay=0.0)
    before = values(model)
    give_gradients(model, seed=0)
    model.heads["rtd"].weight.grad = None
    optimizers.step()
    after = values(model)
    torch.testing.assert_close((after[MATRIX] - before[MATRIX]).norm(), 0.1 * before[MATRIX].norm())
    assert {*before} - {*changed(before, after)} == {"heads.rtd.weight"}


def test_muon_trains_only_the_matrices_of_blocks_and_the_others_exactly_as_with_adamw():
    model, other = two_models()
    before = values(model)
    pair = [optimizers_of(model, 0.1, kind="muon", weight_decay=0.0), optimizers_of(other, 0.1, weight_decay=0.0)]
    by_muon, by_adam = (
        {name.split("/")[0] for name in pair[0].tensors() if name.endswith(state)}
        for state in ("momentum_buffer", "exp_avg")
    )
    assert by_muon == {MATRIX}
    assert by_adam == {*before} - {MATRIX}
    for trained, optimizers in zip((model, other), pair, strict=True):
        give_gradients(trained, seed=0)
        optimizers.step()
    assert changed(values(model), values(other)) == [MATRIX]
    # The Newton-Schulz iteration gives singular values around 1, times 0.2·√4 to match the size of Adam's update.
    lengths = torch.linalg.svdvals((values(model)[MATRIX] - before[MATRIX]) / 0.1)
    assert lengths.min() > 0.6 * 0.4
    assert lengths.max() < 1.4 * 0.4


def test_muon_on_a_cpu_without_bf16_gives_no_warning():
    model = nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(128, 128)])})
    optimizers = optimizers_of(model, kind="muon")
    give_gradients(model, seed=0)
    # Warnings are errors in tests.
    optimizers.step()


def test_updates_of_muon_equal_those_of_pytorchs():
    for shapes in ([(8, 8), (8, 8)], [(4, 12), (12, 4), (4, 12)], [(1, 5)]):
        weights = [torch.randn(shape) for shape in shapes]
        one, other = ([nn.Parameter(weight.clone()) for weight in weights] for _ in range(2))
        ours = Muon(one, torch.tensor(0.1), weight_decay=0.01)
        reference = torch.optim.Muon(other, 0.1, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
        for _ in range(3):
            for a, b in zip(one, other, strict=True):
                a.grad = torch.randn_like(a)
                b.grad = a.grad.clone()
            ours.step()
            reference.step()
        for a, b in zip(one, other, strict=True):
            # Both orthogonalise in bf16, whose rounding depends on the order of the sums.
            torch.testing.assert_close(a, b, rtol=0, atol=0.1 * 0.2 * max(a.shape) ** 0.5 * 3 * 2**-6)


def test_muon_reads_the_rate_on_the_device():
    matrix = nn.Parameter(torch.ones(3, 3, device="meta"))
    optimizer = Muon([matrix], torch.tensor(0.1, device="meta"), weight_decay=0.01)
    matrix.grad = torch.ones_like(matrix)
    # Reading a number from the meta device would raise.
    optimizer.step()
