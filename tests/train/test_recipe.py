"""Validation of recipes, and which keys may change when a run is resumed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lightbert.config import from_mapping, to_mapping
from lightbert.data.examples import Packing, Segments
from lightbert.errors import InputError
from lightbert.train.run_folder import check_recipe
from lightbert.train.schedule import Schedule
from lightbert.train.settings import Continuation, Recipe

GOOD = Recipe(data="corpus", out="runs/x", steps=100)


def resume(before: Recipe, now: Recipe) -> None:
    """Check whether a run may be resumed with another recipe."""
    check_recipe(to_mapping(now), json.loads(json.dumps(to_mapping(before))), Path("runs/x"), now.may_change)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"data": ""}, "data is required; add data=FOLDER"),
        ({"out": ""}, "out is required; add out=FOLDER"),
        ({"steps": 0}, "the length of training is required; add steps=, epochs= or max_minutes="),
        ({"epochs": 3}, "only one of steps and epochs can be set, got 100 and 3"),
        ({"batch": 0}, "batch must be >= 1, got 0"),
        ({"length": -1}, "length must be >= 1, got -1"),
        ({"accumulate": 0}, "accumulate must be >= 1, got 0"),
        ({"keep": 0}, "keep must be >= 1, got 0"),
        ({"seed": -1}, r"seed must be in \[0, 9223372036854775808\), got -1"),
        ({"checkpoint_every": -5}, "checkpoint_every must be >= 0, got -5"),
        ({"lr": 0.0}, r"lr must be > 0, got 0\.0"),
        (
            {"steps": 0, "max_minutes": 5.0},
            r"must be a share of the run \(< 1\) if only max_minutes is set, got 10000.*; use .* schedule.warmup=0.1",
        ),
        (
            {
                "steps": 0,
                "max_minutes": 5.0,
                "schedule": Schedule(warmup=0.1),
                "phases": (Continuation(length=512, steps=10),),
            },
            "phases require steps= or epochs=",
        ),
    ],
)
def test_an_invalid_recipe_raises_an_error_with_a_remedy(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        replace(GOOD, **changes)


def test_a_folder_given_as_the_size_of_the_generator_gets_the_key_for_folders() -> None:
    with pytest.raises(InputError, match="generator must be a number, got 'runs/x'; did you mean 'generator_model'"):
        from_mapping(Recipe, {"data": "d", "out": "o", "steps": 1, "generator": "runs/x"})
    with pytest.raises(InputError, match=r"^steps must be an integer, got 'many'$"):
        from_mapping(Recipe, {"data": "d", "out": "o", "steps": "many"})


@pytest.mark.parametrize("changes", [{"steps": 0}, {"length": 0}, {"batch": -1}, {"lr": -1.0}])
def test_an_invalid_phase_raises_an_error(changes: dict[str, object]) -> None:
    with pytest.raises(InputError, match="must be >= "):
        replace(GOOD, phases=(replace(Continuation(length=512, steps=10), **changes),))


def test_resolved_phases_are_all_phases_with_default_values_filled_in() -> None:
    last = Continuation(256, 20, batch=2, lr=1e-4, data="more", warmup=0, decay=0.5)
    recipe = replace(GOOD, lr=1e-3, batch=8, phases=(Continuation(512, 10), last))
    schedule = recipe.schedule
    assert recipe.resolved_phases(7) == [
        (128, 100, 8, 1e-3, recipe.data, schedule),
        (512, 10, 8, 1e-3, recipe.data, schedule),
        (256, 20, 2, 1e-4, "more", replace(schedule, warmup=0, decay=0.5)),
    ]


def test_epochs_are_converted_to_steps() -> None:
    recipe = replace(GOOD, steps=0, epochs=3)
    assert recipe.resolved_phases(7)[0].steps == 21


def test_a_run_with_a_time_limit_only_has_zero_steps() -> None:
    recipe = replace(GOOD, steps=0, max_minutes=1.0, schedule=Schedule())
    assert recipe.resolved_phases(7) == [recipe.resolved_phases(9)[0]]
    assert recipe.resolved_phases(7)[0].steps == 0


def test_every_kind_of_examples_has_its_builder() -> None:
    assert replace(GOOD, examples="segments-released").builder() == Segments(released=True)
    assert replace(GOOD, examples="packed").builder() == Packing()
    kinds = ("segments", "segments-released", "lines", "pairs", "packed")
    assert len({repr(replace(GOOD, examples=kind).builder()) for kind in kinds}) == 5


def test_a_run_can_be_resumed_with_the_same_recipe_read_from_its_file() -> None:
    recipe = replace(GOOD, phases=(Continuation(512, 10),), dropout=0.0)
    resume(recipe, recipe)
    assert from_mapping(Recipe, to_mapping(recipe)) == recipe


@pytest.mark.parametrize(
    "changes", [{"out": "elsewhere"}, {"workers": 7}, {"keep": 9}, {"device": "cpu"}, {"accumulate": 4}]
)
def test_keys_that_do_not_affect_training_may_change(changes: dict[str, object]) -> None:
    resume(GOOD, replace(GOOD, **changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"lr": 1e-5}, r"the run in 'runs/x' has lr = 0\.0003, this recipe has 1e-05; set out= to another"),
        ({"steps": 50}, "steps = 100, this recipe has 50"),
        (
            {"schedule": Schedule(warmup=0.5)},
            r"schedule\.warmup = .+, this recipe has 0\.5; .*restore schedule\.warmup",
        ),
        ({"change": {"depth": 3}}, r"change\.depth = None, this recipe has 3"),
        ({"phases": (Continuation(512, 10),)}, r"phases = \[\], this recipe has \[\{"),
        ({"rtd_weight": 25.0}, r"rtd_weight = 50\.0, this recipe has 25\.0"),
        ({"shared_embeddings": "generator"}, "shared_embeddings = both, this recipe has generator"),
        ({"model": "bert-tiny"}, "model = convbert-tiny, this recipe has bert-tiny"),
    ],
)
def test_a_changed_key_that_affects_training_raises_an_error_with_both_values(
    changes: dict[str, object], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        resume(GOOD, replace(GOOD, **changes))


def test_a_key_that_was_removed_raises_an_error_too() -> None:
    with pytest.raises(InputError, match=r"change\.depth = 3, this recipe has None"):
        resume(replace(GOOD, change={"depth": 3}), GOOD)


def test_two_streams_cannot_be_compiled_as_a_whole() -> None:
    with pytest.raises(InputError, match="overlap=true can't be compiled as a whole; use compile=blocks"):
        from_mapping(Recipe, {"data": "d", "out": "o", "steps": 1, "overlap": True, "compile": "whole"})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"temperature": 2.0}, r"has temperature = 1\.0, this recipe has 2\.0"),
        ({"rtd_weight": 25.0}, r"has rtd_weight = 50\.0, this recipe has 25\.0"),
        ({"shared_embeddings": "generator"}, "has shared_embeddings = both, this recipe has generator"),
    ],
)
def test_a_run_of_a_version_without_a_key_had_its_default(changes: dict[str, object], problem: str) -> None:
    before = json.loads(json.dumps(to_mapping(GOOD)))
    for key in changes:
        del before[key]
    del before["optimizer"]["beta2"]
    check_recipe(to_mapping(GOOD), before, Path("runs/x"), GOOD.may_change, GOOD.defaults)
    now = replace(GOOD, **changes)
    with pytest.raises(InputError, match=problem):
        check_recipe(to_mapping(now), before, Path("runs/x"), now.may_change, now.defaults)
