"""Recipes of the training commands: read by name, overridden by `key=value`, and documented in `--help`."""

import importlib
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lightbert import recipes
from lightbert.commands.report import AsJson, Report, Table, show
from lightbert.config import Key, assignments, keys, meant_keys
from lightbert.errors import InputError
from lightbert.recipes.toml import to_toml, to_toml_value

if TYPE_CHECKING:
    from lightbert.train.settings import BaseRecipe


VERBS = {
    "pretrain": ("lightbert.train.settings", "Recipe"),
    "distill": ("lightbert.train.settings", "DistillRecipe"),
    "finetune": ("lightbert.tasks.finetune.recipe", "FinetuneRecipe"),
}
"""Command -> (module, class) of its recipes; the modules don't import torch."""

T = TypeVar("T", bound="BaseRecipe")

_MEANING_WIDTH = 70


def recipe_class(verb: str) -> "type[BaseRecipe]":
    """Return the recipe class of a command."""
    module, name = VERBS[verb]
    recipe: type[BaseRecipe] = getattr(importlib.import_module(module), name)
    return recipe


def verbs_for(values: Mapping[str, Any]) -> list[str]:
    """Return the commands that accept all keys of a recipe."""
    return [verb for verb in VERBS if values.keys() <= _known(verb)]


def read_recipe(verb: str, recipe: str) -> dict[str, Any]:
    """Read a recipe, and check that it is for this command."""
    values = recipes.read(recipe)
    verbs = verbs_for(values)
    if verbs and verb not in verbs:
        raise InputError(f"'{recipe}' is a recipe for {verbs[0]}; run 'lightbert {verbs[0]} {recipe} …'")
    return values


def command_words(verb: str, recipe: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words of a command with these overrides, for the model card."""
    return ("lightbert", verb, recipe, *_pairs(values))


def _pairs(values: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _pairs(value, f"{prefix}{key}.")
        elif value is None:
            yield f"{prefix}{key}=none"
        elif isinstance(value, str) and assignments([f"value={value}"]) == {"value": value}:
            yield f"{prefix}{key}={value}"
        else:
            yield f"{prefix}{key}={to_toml_value(value)}"


def as_assignment(verb: str, option: str, arguments: list[str]) -> str | None:
    """Return the key=value pair meant by an option, such as `batch=8` for `--batch-size 8`; None if there is none."""
    meant = meant_keys(recipe_class(verb), option.lstrip("-").replace("-", "_"))
    if not meant:
        return None
    at = next(index for index, argument in enumerate(arguments) if argument.partition("=")[0] == option)
    value = arguments[at].partition("=")[2] or next(iter(arguments[at + 1 :]), "VALUE")
    return f"{meant[0]}={value}"


def key_list(verb: str) -> str:
    """Return the keys of a command with descriptions and defaults, for `--help`."""
    listed = keys(recipe_class(verb))
    width = max(len(key.name) for key in listed)
    groups = [[f"{group}:", *_lines(members, width)] for group, members in groupby(listed, lambda key: key.group)]
    # click doesn't rewrap a paragraph that starts with this character.
    return "\n\n".join("\b\n" + "\n".join(lines) for lines in groups)


def _lines(members: Iterable[Key], width: int) -> Iterable[str]:
    for key in members:
        facts = "; ".join(fact for fact in (key.allowed, f"default {key.default_text}") if fact)
        first, *more = textwrap.wrap(f"{key.meaning} [{facts}]", _MEANING_WIDTH, break_on_hyphens=False)
        yield f"  {key.name:{width}}  {first}"
        yield from (f"  {'':{width}}  {line}" for line in more)


def _known(verb: str) -> set[str]:
    from lightbert.tasks.finetune.plan import PLURAL_KEYS

    return {*(field.name for field in fields(recipe_class(verb))), *(PLURAL_KEYS if verb == "finetune" else ())}


def run(name: str = "") -> Report:
    """Print one recipe, or list the packaged recipes by command."""
    if name:
        values, comment = recipes.read(name), recipes.comment(name)
        content = {"name": name, "verb": next(iter(verbs_for(values)), ""), "summary": comment[0] if comment else ""}
        lines = [*(f"# {line}".rstrip() for line in comment), to_toml(values).rstrip()]
        return Report({**content, "values": values}, ["\n".join(lines)])
    listed = [{key: run(recipe).content[key] for key in ("name", "verb", "summary")} for recipe in recipes.names()]
    listed.sort(key=lambda recipe: [*VERBS].index(recipe["verb"]))
    parts: list[str | Table] = []
    for verb in dict.fromkeys(recipe["verb"] for recipe in listed):
        rows = [(f"  {recipe['name']}", recipe["summary"]) for recipe in listed if recipe["verb"] == verb]
        parts += [f"lightbert {verb} RECIPE key=value …", Table(("", ""), rows, left=2, frame=False), ""]
    return Report({"recipes": listed}, [*parts, "'lightbert recipes NAME' prints one."])


def command(
    name: Annotated[str, typer.Argument(help="A recipe to print; lists all recipes if omitted.")] = "",
    json: AsJson = False,
) -> None:
    """List the packaged recipes, or print one as TOML, including the values of its parents.

    Your own recipe can extend one of them: parent = "convbert-small-rtd".
    """
    show(run(name), json=json)
