"""The model and the generator that a recipe starts from: trained ones, or presets with random weights."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.interop.load import describe, read
from lightbert.interop.names import FoundModel, ModelFolder, Preset, find, generator_of
from lightbert.models import Config, Model, add_head, build
from lightbert.models.changes import with_changes
from lightbert.models.generator import generator
from lightbert.ops.randomness import named
from lightbert.train.run_folder import flatten, load_recipe
from lightbert.train.settings import CorpusRecipe, Recipe

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def starting_config(recipe: CorpusRecipe) -> Config:
    """Return the model's config with the recipe's overrides, and with enough positions for the longest row."""
    if "vocab" in recipe.change:
        raise InputError("change.vocab can't be set: the data determines the vocabulary; remove it")
    config = describe(find(recipe.model)).config
    config = from_mapping(type(config), {**to_mapping(config), **recipe.change})
    if 0 < config.positions < recipe.longest:
        config = replace(config, positions=recipe.longest)
    if recipe.dropout is not None:
        config = replace(config, dropout=recipe.dropout, attention_dropout=recipe.dropout)
    return config


def starting_model(
    recipe: CorpusRecipe,
    vocab: int,
    heads: Collection[str],
    seed: int,
    tokenizer: "Tokenizer | None" = None,
    head_settings: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> Model:
    """Build the model with weights drawn from the seed, or load it, and add the heads to train.

    tokenizer: that of the data, which must have the token ids of a loaded model.
    """
    config = replace(starting_config(recipe), vocab=vocab)
    found = find(recipe.model)
    model = build(config, seed=seed) if isinstance(found, Preset) else _read(found, recipe.model, config)
    if tokenizer is not None and model.tokenizer is not None and model.tokenizer.get_vocab() != tokenizer.get_vocab():
        raise InputError(
            f"the model '{recipe.model}' and the data '{recipe.data}' must have the same vocabulary, but their token "
            f"ids differ; prepare the text with the model's tokenizer (lightbert prepare --tokenizer {recipe.model})"
        )
    model.checkpointing = recipe.checkpointing
    _add_heads(model, {*heads}, seed, head_settings)
    return model


def _add_heads(model: Model, kinds: set[str], seed: int, settings: Mapping[str, dict[str, Any]]) -> None:
    """Add the missing heads and freeze the heads that this run doesn't train."""
    for kind in sorted(kinds - {*model.heads}):
        add_head(model, kind, settings.get(kind), seed=seed)
    for kind, head in model.heads.items():
        head.requires_grad_(kind in kinds)


def _read(found: FoundModel, name: str, config: Config) -> Model:
    """Load the model, with the dropout rates of the config; all other fields must be those of the model."""
    model = with_dropout_of(config, read(found))
    if model.config != config:
        differs = next(k for k, v in to_mapping(config).items() if getattr(model.config, k) != v)
        was, now = getattr(model.config, differs), getattr(config, differs)
        remedies = {
            "vocab": f"; prepare the text with the model's tokenizer (lightbert prepare --tokenizer {name})",
            "positions": f"; set length= to at most {was}",
        }
        remedy = remedies.get(differs, "")
        raise InputError(f"'{name}' has {differs} = {was}, but the recipe and its data require {now}{remedy}")
    return model


def with_dropout_of(config: Config, model: Model) -> Model:
    """Return the model with the dropout rates of a config; weights don't depend on them."""
    rates = {"dropout": config.dropout, "attention_dropout": config.attention_dropout}
    same = all(getattr(model.config, name) == rate for name, rate in rates.items())
    return model if same else with_changes(model, rates)


NONE = "none"


def starting_generator(recipe: Recipe, discriminator: Model) -> Model:
    """Load the generator that belongs to the discriminator, or build one with weights drawn from the seed."""
    config = generator(discriminator.config, recipe.generator)
    found = find_generator(recipe)
    if found is None:
        # Generator and discriminator have the same parameter names: with one seed they would get the same weights.
        return build(config, heads={"mlm": {}}, seed=named(recipe.seed, "generator"))
    model = with_dropout_of(config, read(found)).train()
    if model.config != config or "mlm" not in model.heads:
        raise InputError(
            f"the generator '{found.name}' must have the size that generator={recipe.generator} gives for "
            f"'{recipe.model}', and an mlm head; set generator= to its size, or generator_model={NONE} to start with a "
            "new one"
        )
    return model


def find_generator(recipe: Recipe) -> ModelFolder | None:
    """Return the generator: the given one, or the one in the model's folder or next to it; None for random weights."""
    if recipe.generator_model == NONE:
        return None
    if recipe.generator_model:
        return _folder(recipe.generator_model)
    return generator_of(find(recipe.model))


def describe_generator(recipe: Recipe) -> str:
    """Say which generator a run starts with."""
    found = find_generator(recipe)
    return "random weights" if found is None else f"'{found.name}'"


def _folder(name: str) -> ModelFolder:
    found = find(name)
    if not isinstance(found, ModelFolder):
        raise InputError(f"generator_model must be a trained model, got '{name}'; give its folder, or {NONE}")
    return found


def check_teacher(out: str, key: str, name: str, weights: Mapping[str, str]) -> None:
    """Check that a resumed run has the same teacher; compared first because a message about hashes is unreadable."""
    before = load_recipe(Path(out)) or {}
    if any(before.get(field, value) != value for field, value in weights.items()):
        raise InputError(
            f"the run in '{out}' has {key} '{dict(flatten(before))[key]}', and '{name}' has different weights; "
            f"set out= to another folder, or restore {key}="
        )


def fingerprint(model: nn.Module) -> str:
    """Return a hash of a model's weights, independent of the file format."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(memoryview(tensor.contiguous().flatten().view(torch.uint8).numpy()))
    return f"sha256:{digest.hexdigest()}"
