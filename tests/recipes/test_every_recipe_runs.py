"""Two steps of every recipe, with its own objective, examples, optimizer and phases, at a size that takes a moment."""

import json

import pytest
from recipe_files import FOLDER, NAMES, read

import lightbert
from lightbert.config import resolve
from lightbert.models import preset
from lightbert.train.distributed import world
from lightbert.train.pretraining import pretrain
from lightbert.train.recipe import Recipe
from lightbert.train.signals import Interruption

SIZES = {"depth": 1, "narrow": 8, "width": 16, "n_heads": 4, "inner": 32, "block_width": 8}


def shrunk(name, corpus, out):
    """The recipe with as little as possible overridden."""
    recipe = read(name)
    fields = vars(preset(recipe.model))
    settings = {
        "data": corpus,
        "out": out,
        "steps": 2,
        "batch": 2,
        "length": 16,
        "evaluate_batches": 1,
        "workers": 0,
        "device": "cpu",
        **{f"change.{field}": size for field, size in SIZES.items() if field in fields},
    }
    if recipe.phases:
        settings["phases"] = "[{length = 24, steps = 1}]"
    return resolve(Recipe, FOLDER / f"{name}.toml", [f"{key}={value}" for key, value in settings.items()])


@pytest.mark.parametrize("name", NAMES)
def test_two_steps_of_a_recipe_leave_a_model_that_loads(name, corpus, tmp_path):
    recipe = shrunk(name, corpus, tmp_path / "run")
    with world("cpu") as place:
        outcome = pretrain(recipe, place, Interruption())
    assert outcome.finished
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, outcome.step + 1))
    assert all(line["loss"] > 0 for line in lines)
    model = lightbert.load(tmp_path / "run" / "final")
    assert recipe.objective in model.heads
    assert ("nsp" in model.heads) == (recipe.examples == "pairs")
    assert recipe.change.items() <= vars(model.config).items()
