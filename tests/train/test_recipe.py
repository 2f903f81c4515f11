"""What a recipe may say, and what a resumed one may say otherwise."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lightbert.config import from_mapping, to_mapping
from lightbert.data.examples.packing import Packing
from lightbert.data.examples.segments import Segments
from lightbert.errors import InputError
from lightbert.train.recipe import Continuation, Recipe
from lightbert.train.recipe_file import check_recipe
from lightbert.train.schedule import Schedule

GOOD = Recipe(data="corpus", out="runs/x", steps=100)


def go_on(before: Recipe, now: Recipe) -> None:
    """Ask whether a run may go on with another recipe."""
    check_recipe(to_mapping(now), json.loads(json.dumps(to_mapping(before))), Path("runs/x"), now.may_change)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"data": ""}, "has no data: add data=FOLDER"),
        ({"out": ""}, "has no out: add out=FOLDER"),
        ({"steps": 0}, "does not say how long to train: add steps=, epochs= or max_minutes="),
        ({"epochs": 3}, "only one of steps and epochs can be set, got 100 and 3"),
        ({"batch": 0}, "batch must be >= 1, got 0"),
        ({"length": -1}, "length must be >= 1, got -1"),
        ({"accumulate": 0}, "accumulate must be >= 1, got 0"),
        ({"keep": 0}, "keep must be >= 1, got 0"),
        ({"seed": -1}, r"seed must be in \[0, 9223372036854775808\), got -1"),
        ({"checkpoint_every": -5}, "checkpoint_every must be >= 0, got -5"),
        ({"lr": 0.0}, r"lr must be > 0, got 0\.0"),
        ({"steps": 0, "max_minutes": 5.0}, "give it as a share, such as schedule.warmup=0.1"),
        (
            {
                "steps": 0,
                "max_minutes": 5.0,
                "schedule": Schedule(warmup=0.1),
                "phases": (Continuation(length=512, steps=10),),
            },
            "does not say when the first phase ends",
        ),
    ],
)
def test_a_recipe_that_cannot_be_trained_is_refused_with_its_remedy(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        replace(GOOD, **changes)


@pytest.mark.parametrize("changes", [{"steps": 0}, {"length": 0}, {"batch": -1}, {"lr": -1.0}])
def test_a_phase_that_cannot_be_trained_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InputError, match="must be >= "):
        replace(GOOD, phases=(replace(Continuation(length=512, steps=10), **changes),))


def test_stretches_are_all_phases_with_their_values_filled_in() -> None:
    recipe = replace(GOOD, lr=1e-3, batch=8, phases=(Continuation(512, 10), Continuation(256, 20, batch=2, lr=1e-4)))
    assert recipe.stretches(7) == [
        (128, 100, 8, 1e-3),
        (512, 10, 8, 1e-3),
        (256, 20, 2, 1e-4),
    ]


def test_epochs_are_turned_into_steps() -> None:
    recipe = replace(GOOD, steps=0, epochs=3)
    assert recipe.stretches(7)[0].steps == 21


def test_a_run_by_time_has_no_steps() -> None:
    recipe = replace(GOOD, steps=0, max_minutes=1.0, schedule=Schedule())
    assert recipe.stretches(7) == [recipe.stretches(9)[0]]
    assert recipe.stretches(7)[0].steps == 0


def test_every_kind_of_examples_has_its_builder() -> None:
    assert replace(GOOD, examples="segments-released").builder() == Segments(released=True)
    assert replace(GOOD, examples="packed").builder() == Packing()
    kinds = ("segments", "segments-released", "lines", "pairs", "packed")
    assert len({repr(replace(GOOD, examples=kind).builder()) for kind in kinds}) == 5


def test_the_same_recipe_read_back_from_its_file_may_go_on() -> None:
    recipe = replace(GOOD, phases=(Continuation(512, 10),), dropout=0.0)
    go_on(recipe, recipe)
    assert from_mapping(Recipe, to_mapping(recipe)) == recipe


@pytest.mark.parametrize(
    "changes", [{"out": "elsewhere"}, {"workers": 7}, {"keep": 9}, {"device": "cpu"}, {"accumulate": 4}]
)
def test_what_does_not_change_what_is_learned_may_change(changes: dict[str, object]) -> None:
    go_on(GOOD, replace(GOOD, **changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"lr": 1e-5}, r"'runs/x' holds a run with lr = 0\.0003, this recipe says 1e-05: set out= to another"),
        ({"steps": 50}, "steps = 100, this recipe says 50"),
        (
            {"schedule": Schedule(warmup=0.5)},
            r"schedule\.warmup = .+, this recipe says 0\.5: .*schedule\.warmup back",
        ),
        ({"change": {"depth": 3}}, r"change\.depth = None, this recipe says 3"),
        ({"phases": (Continuation(512, 10),)}, r"phases = \[\], this recipe says \[\{"),
        ({"model": "bert-tiny"}, "model = convbert-tiny, this recipe says bert-tiny"),
    ],
)
def test_what_does_is_refused_with_both_values(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        go_on(GOOD, replace(GOOD, **changes))


def test_what_is_no_longer_said_is_refused_too() -> None:
    with pytest.raises(InputError, match=r"change\.depth = 3, this recipe says None"):
        go_on(replace(GOOD, change={"depth": 3}), GOOD)
