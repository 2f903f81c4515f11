"""In progressive transfer the weights and optimizer state of a layer change only from its stage on."""

from pathlib import Path

import pytest
import torch
from tiny_runs import distillation_of, records, student_before, train

from lightbert.train.checkpoint import Checkpoint, load_newest

OPTIMIZERS = ["adamw", "lamb", "muon"]


def stopped(corpus: Path, out: Path, step: int, **changes: object) -> Checkpoint:
    """Return the checkpoint of a run that is interrupted at a step."""
    train(distillation_of(corpus, out, **changes), stop_after=step)
    found = load_newest(out / "checkpoints")
    assert found is not None
    assert found.facts["step"] == step
    return found


def touched(state: dict[str, torch.Tensor]) -> set[str]:
    """Return the blocks, tables and heads with non-zero optimizer state, ignoring step counters."""
    found = {name for name, value in state.items() if not name.endswith("/step") and value.any()}
    return {".".join(name.split(".")[1:3]) for name in found}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_optimizer_state_of_a_layer_is_zero_before_its_stage(corpus: Path, tmp_path: Path, kind: str) -> None:
    changes = {"optimizer": {"kind": kind}, "checkpoint_every": 1}
    blocks = ["blocks.0", "blocks.1", "blocks.2"]
    for step, layers in [(2, 1), (3, 2), (4, 2), (5, 3)]:
        state = stopped(corpus, tmp_path, step, **changes).groups["optimizer"]
        assert touched(state) == {*blocks[:layers]}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("lower", ["soft", "frozen"])
def test_layers_below_train_slowly_or_are_frozen_and_layers_above_are_frozen(
    corpus: Path, tmp_path: Path, kind: str, lower: str
) -> None:
    changes = {"optimizer": {"kind": kind, "weight_decay": 0.1}, "lower": lower, "checkpoint_every": 1}
    earlier = stopped(corpus, tmp_path, 2, **changes).groups["weights"]
    later = stopped(corpus, tmp_path, 4, **changes).groups["weights"]
    moved = {name for name in later if not torch.equal(later[name], earlier[name])}
    blocks = {name.split(".")[2] for name in moved}
    assert blocks == ({"0", "1"} if lower == "soft" else {"1"})
    assert all(name.startswith("student.blocks.") for name in moved)


def test_the_current_layer_trains_at_its_multiple_of_the_rate(corpus: Path, tmp_path: Path) -> None:
    # The first step of Adam without decay is the rate times a function of the gradient, which is the same for both.
    name = "blocks.0.output.weight"
    moved = {}
    for layer_rate in (1.0, 3.0):
        changes = {"layer_rate": layer_rate, "optimizer": {"weight_decay": 0.0, "clip": 1e9}, "checkpoint_every": 1}
        out = tmp_path / str(layer_rate)
        start = student_before(distillation_of(corpus, out, **changes))[name]
        moved[layer_rate] = stopped(corpus, out, 1, **changes).groups["weights"][f"student.{name}"] - start
    assert moved[1.0].abs().mean() > 1e-4
    torch.testing.assert_close(moved[3.0], 3 * moved[1.0], rtol=1e-4, atol=1e-7)


def test_each_stage_warms_up_for_a_tenth_and_then_decays_to_nine_tenths(corpus: Path, tmp_path: Path) -> None:
    train(distillation_of(corpus, tmp_path, transfer_steps=60, evaluate_every=0, checkpoint_every=0))
    rates = [record["lr"] / 1e-3 for record in records(tmp_path)]
    at = [(step + 1) / 21 for step in range(20)]
    expected = [min(0.9 + 0.1 * (1 - t) ** 0.5, 10 * t) for t in at]
    assert rates[:60] == pytest.approx(expected * 3)
