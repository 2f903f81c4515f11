"""The packaged recipes by command, and functions that read them."""

from typing import Any

from lightbert import bundled
from lightbert.config import from_mapping
from lightbert.recipes import names
from lightbert.recipes import read as read_values
from lightbert.train.settings import DistillRecipe, Recipe

NAMES = names()


def values(name: str) -> dict[str, Any]:
    """The values of a recipe and its parents."""
    return read_values(name)


FINETUNING = [name for name in NAMES if {"task", "tasks", "layer_decay"} & values(name).keys()]
DISTILLATION = [name for name in NAMES if "strategy" in values(name)]
ADAPTATION = [
    name for name in NAMES if values(name).get("model") in bundled.NAMES and name not in {*FINETUNING, *DISTILLATION}
]
"""Recipes that continue the pre-training of a bundled model."""
PRETRAINING = [name for name in NAMES if name not in {*FINETUNING, *DISTILLATION, *ADAPTATION}]


def read(name: str) -> Recipe:
    """A pre-training recipe, with placeholders for data and out."""
    return from_mapping(Recipe, {"data": "data", "out": "out", **values(name)})


def read_distillation(name: str) -> DistillRecipe:
    """A distillation recipe, with placeholders for data, out and teacher."""
    return from_mapping(DistillRecipe, {"data": "data", "out": "out", "teacher": "teacher", **values(name)})
