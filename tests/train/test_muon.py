"""Muon for the matrices of the blocks, AdamW for the rest."""

import torch
from small_models import Parts, give_gradients, optimizers_of, values


def test_it_moves_the_matrices_of_the_blocks_and_nothing_else() -> None:
    model = Parts()
    optimizers = optimizers_of(model, kind="muon")
    moved_by_muon = {name.split("/")[0] for name in optimizers.tensors() if name.endswith("momentum_buffer")}
    moved_by_adam = {name.split("/")[0] for name in optimizers.tensors() if name.endswith("exp_avg")}
    assert moved_by_muon == {"blocks.0.output.weight"}
    assert moved_by_muon | moved_by_adam == {name for name, _ in model.named_parameters()}
    assert not moved_by_muon & moved_by_adam


def test_a_step_turns_a_matrix_by_a_nearly_orthogonal_one() -> None:
    model = Parts()
    optimizers = optimizers_of(model, 0.1, kind="muon", weight_decay=0.0)
    before = values(model)["blocks.0.output.weight"]
    give_gradients(model, seed=0)
    optimizers.step()
    change = (values(model)["blocks.0.output.weight"] - before) / 0.1
    lengths = torch.linalg.svdvals(change)
    # Newton and Schulz's iteration leaves the singular values around 1, times the 0.2·√4 that matches Adam's step.
    assert lengths.min() > 0.6 * 0.4
    assert lengths.max() < 1.4 * 0.4


def test_the_others_move_exactly_as_with_adamw() -> None:
    model, other = Parts(), Parts()
    other.load_state_dict(model.state_dict())
    pair = ((model, optimizers_of(model, kind="muon")), (other, optimizers_of(other, kind="adamw")))
    for each, optimizers in pair:
        give_gradients(each, seed=0)
        optimizers.step()
    ours, theirs = values(model), values(other)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == ["blocks.0.output.weight"]


def test_a_processor_without_bf16_is_no_news() -> None:
    model = torch.nn.ModuleDict({"blocks": torch.nn.ModuleList([torch.nn.Linear(128, 128)])})
    optimizers = optimizers_of(model, kind="muon")
    give_gradients(model, seed=0)
    # A warning would be an error here.
    optimizers.step()
