"""Where the recipes are, what each is for, and how to read them."""

from pathlib import Path
from typing import Any

from lightbert.config import from_mapping, read_toml
from lightbert.train.distill_recipe import DistillRecipe
from lightbert.train.recipe import Recipe

FOLDER = Path(__file__).parents[2] / "recipes"
NAMES = sorted(path.stem for path in FOLDER.glob("[!_]*.toml"))
PARENTS = sorted(path.stem for path in FOLDER.glob("_*.toml"))


def values(name: str) -> dict[str, Any]:
    """What a recipe and its parents say."""
    return read_toml(FOLDER / f"{name}.toml")


FINETUNING = [name for name in NAMES if {"task", "tasks", "layer_decay"} & values(name).keys()]
DISTILLATION = [name for name in NAMES if "strategy" in values(name)]
PRETRAINING = [name for name in NAMES if name not in {*FINETUNING, *DISTILLATION}]


def read(name: str) -> Recipe:
    """A pre-training recipe as it is, with somewhere to read from and to write to."""
    return from_mapping(Recipe, {"data": "data", "out": "out", **values(name)})


def read_distillation(name: str) -> DistillRecipe:
    """A distillation recipe, likewise, with somebody to learn from."""
    return from_mapping(DistillRecipe, {"data": "data", "out": "out", "teacher": "teacher", **values(name)})
