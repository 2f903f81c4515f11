"""Strategies: their stages, and the parameters trained in each."""

import pytest
from transfer_pairs import DEPTH, batch_of, distillation

from lightbert.errors import InputError
from lightbert.objectives.distill.stages import Scales, stages
from lightbert.train.optim import Optimizers
from lightbert.train.settings import OptimizerSettings

KINDS = {"embeddings", "blocks.0", "blocks.1", "blocks.2", "heads"}


def stages_of(strategy, **changes):
    return stages(strategy, **{"depth": DEPTH, "transfer_steps": 9, "predict_steps": 5, **changes})


def kinds_of(names):
    """Return the parts of the student to which parameters belong."""
    parts = [name.split(".")[1:3] for name in names]
    return {".".join(part) if part[0] == "blocks" else part[0] for part in parts}


def moved(objective, stage, *, settings=None, rate=0.01, batch=None):
    """Run one step of a stage as the loop does; return the change of each parameter."""
    optimizers = Optimizers(objective, settings or OptimizerSettings(weight_decay=0.1, clip=1e9))
    objective.set_stage(stage)
    optimizers.scale(stage.scales)
    optimizers.set_rate(rate)
    before = {name: p.detach().clone() for name, p in objective.named_parameters()}
    batch = objective.prepare(batch_of() if batch is None else batch)
    objective(batch, objective.counts(batch)).total.backward()
    reached = {name for name, p in objective.named_parameters() if p.grad is not None and p.grad.any()}
    optimizers.step()
    changes = {name: (p.detach() - before[name]).abs().amax().item() for name, p in objective.named_parameters()}
    return reached, changes


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("bare", [("predict", 14, range(0), True)]),
        ("pd", [("predict", 14, range(0), True)]),
        ("akt", [("together", 14, range(1, 4), True)]),
        ("jkt", [("transfer", 9, range(1, 4), False), ("predict", 5, range(0), True)]),
        (
            "pkt",
            [
                *((f"layer-{layer}", 3, range(layer, layer + 1), False) for layer in (1, 2, 3)),
                ("predict", 5, range(0), True),
            ],
        ),
    ],
)
def test_a_strategy_is_a_list_of_stages(strategy, expected):
    assert [(s.name, s.steps, s.layers, s.predict) for s in stages_of(strategy)] == expected


def test_only_layerwise_transfer_has_the_released_schedule_within_a_stage():
    assert [stage.schedule for stage in stages_of("pkt")] == ["progressive"] * 3 + ["recipe"]
    assert [stage.schedule for stage in stages_of("akt")] == ["recipe"]


def test_steps_are_split_as_evenly_as_possible():
    steps = [stage.steps for stage in stages_of("pkt", depth=24, transfer_steps=1000, predict_steps=0)]
    assert sum(steps) == 1000
    assert set(steps) == {41, 42}


def test_fewer_steps_than_layers_raise_an_error():
    with pytest.raises(InputError, match="transfer_steps must be >= 3, one step per layer, got 2"):
        stages_of("pkt", transfer_steps=2)


def test_zero_steps_give_no_stage():
    assert [stage.name for stage in stages_of("jkt", predict_steps=0)] == ["transfer"]


def test_the_released_multipliers_are_3_for_the_layer_and_a_tenth_of_that_below():
    scales = stages_of("pkt")[1].scales
    assert scales("student.blocks.0.mixer.query.weight") == pytest.approx(0.3)
    assert scales("student.blocks.1.mixer.query.weight") == 3.0
    for resting in ("blocks.2.norm.bias", "embeddings.word.weight", "embeddings.norm.bias", "heads.mlm.bias"):
        assert scales(f"student.{resting}") == 0.0


def test_layer_2_is_not_confused_with_layer_12():
    scales = Scales(range(2, 3))
    assert scales("student.blocks.1.norm.weight") == 1.0
    assert scales("student.blocks.11.norm.weight") == 0.0


def test_maps_are_trained_while_their_layer_is_compared():
    transfer, *_, predict = stages_of("pkt")
    assert [transfer.scales(f"maps.{number}.weight") for number in range(3)] == [3.0, 0.0, 0.0]
    assert predict.scales("maps.0.weight") == 0.0
    assert stages_of("akt")[0].scales("maps.2.bias") == 1.0


def test_embeddings_that_were_not_copied_are_trained_with_the_first_layer():
    free = frozenset({"embeddings.norm.weight"})
    rates = [stage.scales("student.embeddings.norm.weight") for stage in stages_of("pkt", free=free)]
    assert rates == [3.0, pytest.approx(0.3), pytest.approx(0.3), 1.0]
    assert stages_of("jkt", free=free)[0].scales("student.embeddings.norm.weight") == 1.0


@pytest.mark.parametrize(
    ("optimizer", "strategy", "number", "trained"),
    [
        ("adamw", "pkt", 0, {"blocks.0"}),
        ("lamb", "pkt", 1, {"blocks.0", "blocks.1"}),
        ("muon", "jkt", 0, {"blocks.0", "blocks.1", "blocks.2"}),
        ("adamw", "jkt", 1, KINDS),
        ("lamb", "akt", 0, KINDS),
        ("muon", "pd", 0, KINDS),
    ],
)
def test_gradients_reach_exactly_the_trained_parameters_and_nothing_else_changes(optimizer, strategy, number, trained):
    settings = OptimizerSettings(kind=optimizer, weight_decay=0.1)
    objective = distillation()
    stage = stages_of(strategy)[number]
    reached, changes = moved(objective, stage, settings=settings)
    assert kinds_of(reached) == trained
    scaled = {name for name, _ in objective.named_parameters() if stage.scales(name)}
    # A key's bias adds a constant to all scores of a query, which doesn't change the softmax.
    assert {name for name in scaled - reached if not name.endswith("key.bias")} == set()
    assert {name for name, change in changes.items() if change} <= scaled


def test_lower_layers_train_at_the_soft_rate():
    def step(rate, soft):
        stage = stages_of("pkt", rate=rate, soft=soft)[1]
        return moved(distillation(), stage, settings=OptimizerSettings(weight_decay=0.0))[1]

    ours, at_full_rate = step(3.0, 0.1), step(3.0, 1.0)
    for name, change in ours.items():
        if name.startswith("student.blocks.0."):
            assert change == pytest.approx(0.1 * at_full_rate[name], rel=1e-3, abs=1e-6), name
        elif name.startswith("student.blocks.1."):
            assert change == pytest.approx(at_full_rate[name], rel=1e-3, abs=1e-6), name
