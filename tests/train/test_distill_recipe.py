"""Validation of distillation recipes, and which keys may change when a run is resumed."""

from dataclasses import replace
from pathlib import Path

import pytest

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.train.run_folder import check_recipe
from lightbert.train.settings import DistillRecipe

GOOD = DistillRecipe(data="corpus", out="runs/x", teacher="runs/t", transfer_steps=40, steps=100)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"data": ""}, "data is required; add data=FOLDER"),
        ({"teacher": ""}, "strategy 'pkt' requires a teacher; add teacher=PATH"),
        (
            {"steps": 0, "transfer_steps": 0},
            "the length of training is required; add steps=, epochs= or transfer_steps=",
        ),
        ({"transfer_steps": 0}, "strategy 'pkt' requires transfer_steps >= 1, got 0; give at least one step per layer"),
        ({"transfer_steps": 0, "strategy": "jkt"}, "strategy 'jkt' requires transfer_steps >= 1"),
        ({"transfer_steps": -1, "strategy": "pd"}, "transfer_steps must be >= 0, got -1"),
        ({"layer_rate": 0.0}, "layer_rate must be > 0, got 0.0"),
        ({"soft": -0.1}, r"soft must be in \(0, 1\], got -0.1"),
        ({"soft": 1.5}, r"soft must be in \(0, 1\], got 1.5"),
        ({"compile": "whole"}, "compile=whole recompiles at every stage of strategy 'pkt'; use compile=blocks"),
        ({"batch": 0}, "batch must be >= 1, got 0"),
    ],
)
def test_an_invalid_recipe_raises_an_error(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        replace(GOOD, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "bare", "teacher": ""},
        {"strategy": "akt", "transfer_steps": 0},
        {"strategy": "jkt", "steps": 0},
        {"strategy": "akt", "compile": "whole"},
        {"steps": 0, "epochs": 2},
    ],
)
def test_a_strategy_requires_only_the_keys_it_uses(changes: dict[str, object]) -> None:
    replace(GOOD, **changes)


def test_loss_weights_are_nested_keys() -> None:
    values = to_mapping(GOOD) | {"transfer": {"attention": 0, "maps": "linear"}}
    recipe = from_mapping(DistillRecipe, values)
    assert (recipe.transfer.attention, recipe.transfer.maps, recipe.transfer.feature) == (0.0, "linear", 100.0)
    with pytest.raises(InputError, match=r"unknown key 'transfer\.map'; did you mean 'transfer\.maps'"):
        from_mapping(DistillRecipe, to_mapping(GOOD) | {"transfer": {"map": "linear"}})


def test_the_teachers_path_may_change_on_resume_but_loss_settings_may_not() -> None:
    def resume(**changes: object) -> None:
        now = replace(GOOD, **changes)
        check_recipe(to_mapping(now), to_mapping(GOOD), Path("runs/x"), now.may_change)

    resume(teacher="elsewhere", compile="blocks", device="cpu")
    with pytest.raises(InputError, match=r"alpha = 0\.5, this recipe has 0\.9"):
        resume(alpha=0.9)
    with pytest.raises(InputError, match="lower = soft, this recipe has frozen"):
        resume(lower="frozen")
