"""Which recipe is for which of the verbs that train."""

import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lightbert import recipes
from lightbert.errors import InputError

_RECIPES = {
    "pretrain": ("lightbert.train.recipe", "Recipe"),
    "distill": ("lightbert.train.distill_recipe", "DistillRecipe"),
    "finetune": ("lightbert.tasks.finetune.recipe", "FinetuneRecipe"),
}


def known_keys(verb: str) -> set[str]:
    """Return the keys that recipes for a verb may have."""
    from lightbert.tasks.finetune.plan import PLURAL_KEYS

    module, name = _RECIPES[verb]
    recipe = getattr(importlib.import_module(module), name)
    plural = PLURAL_KEYS if verb == "finetune" else ()
    return {*(field.name for field in fields(recipe)), *plural}


def verbs_for(values: Mapping[str, Any]) -> list[str]:
    """Return the verbs that know all keys of a recipe."""
    return [verb for verb in _RECIPES if values.keys() <= known_keys(verb)]


def read_recipe(verb: str, recipe: str) -> dict[str, Any]:
    """Read a recipe for a verb; a recipe for another verb is an error that names that one."""
    values = recipes.read(recipe)
    verbs = verbs_for(values)
    if verbs and verb not in verbs:
        raise InputError(f"'{recipe}' is a recipe for {verbs[0]}; write 'lightbert {verbs[0]} {recipe} …'")
    return values
