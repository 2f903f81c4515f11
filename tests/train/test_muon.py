"""Muon for the matrices of the blocks, AdamW for the rest."""

import pytest
import torch
from small_models import Parts, give_gradients, optimizers_of, values

from lightbert.train.optim.muon import Muon


def test_muon_trains_only_the_matrices_of_blocks() -> None:
    model = Parts()
    optimizers = optimizers_of(model, kind="muon")
    moved_by_muon = {name.split("/")[0] for name in optimizers.tensors() if name.endswith("momentum_buffer")}
    moved_by_adam = {name.split("/")[0] for name in optimizers.tensors() if name.endswith("exp_avg")}
    assert moved_by_muon == {"blocks.0.output.weight"}
    assert moved_by_muon | moved_by_adam == {name for name, _ in model.named_parameters()}
    assert not moved_by_muon & moved_by_adam


def test_the_update_of_a_matrix_is_nearly_orthogonal() -> None:
    model = Parts()
    optimizers = optimizers_of(model, 0.1, kind="muon", weight_decay=0.0)
    before = values(model)["blocks.0.output.weight"]
    give_gradients(model, seed=0)
    optimizers.step()
    change = (values(model)["blocks.0.output.weight"] - before) / 0.1
    lengths = torch.linalg.svdvals(change)
    # The Newton-Schulz iteration gives singular values around 1, times 0.2·√4 to match the size of Adam's update.
    assert lengths.min() > 0.6 * 0.4
    assert lengths.max() < 1.4 * 0.4


def test_the_other_parameters_train_exactly_as_with_adamw() -> None:
    model, other = Parts(), Parts()
    other.load_state_dict(model.state_dict())
    pair = ((model, optimizers_of(model, kind="muon")), (other, optimizers_of(other, kind="adamw")))
    for each, optimizers in pair:
        give_gradients(each, seed=0)
        optimizers.step()
    ours, theirs = values(model), values(other)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == ["blocks.0.output.weight"]


def test_a_cpu_without_bf16_gives_no_warning() -> None:
    model = torch.nn.ModuleDict({"blocks": torch.nn.ModuleList([torch.nn.Linear(128, 128)])})
    optimizers = optimizers_of(model, kind="muon")
    give_gradients(model, seed=0)
    # Warnings are errors in tests.
    optimizers.step()


@pytest.mark.parametrize("shapes", [[(8, 8), (8, 8)], [(4, 12), (12, 4), (4, 12)], [(1, 5)]])
def test_updates_equal_those_of_pytorchs_muon(shapes: list[tuple[int, int]]) -> None:
    ours, theirs = ([torch.nn.Parameter(torch.randn(s, generator=torch.Generator().manual_seed(i)))
                     for i, s in enumerate(shapes)] for _ in range(2))  # fmt: skip
    mine = Muon(ours, torch.tensor(0.1), weight_decay=0.01)
    reference = torch.optim.Muon(theirs, 0.1, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        mine.step()
        reference.step()
    for a, b in zip(ours, theirs, strict=True):
        # Both orthogonalise in bf16, whose rounding depends on the order of the sums.
        torch.testing.assert_close(a, b, rtol=0, atol=0.1 * 0.2 * max(a.shape) ** 0.5 * 3 * 2**-6)


def test_the_rate_is_read_on_the_device() -> None:
    matrix = torch.nn.Parameter(torch.ones(3, 3, device="meta"))
    optimizer = Muon([matrix], torch.tensor(0.1, device="meta"), weight_decay=0.01)
    matrix.grad = torch.ones_like(matrix)
    # Reading a number from the meta device would raise.
    optimizer.step()
