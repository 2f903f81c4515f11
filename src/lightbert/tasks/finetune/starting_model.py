"""The initial model of a fine-tuning run: loaded or built, with the recipe's config changes and the task's head."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from lightbert.config import from_mapping, to_mapping
from lightbert.data.corpus import tokenizer as tokenizers
from lightbert.errors import InputError
from lightbert.interop.load import read
from lightbert.interop.names import Preset, find
from lightbert.models import PRESETS, Model, add_head, build
from lightbert.models.changes import with_changes
from lightbert.models.tokenizer import check_ids
from lightbert.nn.heads.text import TextHead
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.tasks.kinds.kind import Kind


def starting_model(recipe: FinetuneRecipe) -> Model:
    """Load the recipe's model, or build its preset with weights drawn from the seed. The model has a tokenizer."""
    found = find(recipe.starting_model)
    if isinstance(found, Preset):
        if not recipe.tokenizer:
            raise InputError(
                f"the preset '{recipe.model}' requires tokenizer=PATH: add it, or give the folder of a trained model"
            )
        tokenizer = tokenizers.load(recipe.tokenizer)
        changes = {"vocab": tokenizer.get_vocab_size(), **recipe.change}
        preset = PRESETS[found.name]
        model = build(from_mapping(type(preset), {**to_mapping(preset), **changes}), seed=recipe.seed)
        check_ids(tokenizer, model.config.vocab, Path(recipe.tokenizer))
        model.tokenizer = tokenizer
        return model
    model = read(found)
    if recipe.tokenizer:
        model.tokenizer = tokenizers.load(recipe.tokenizer)
        check_ids(model.tokenizer, model.config.vocab, Path(recipe.tokenizer))
    if model.tokenizer is None:
        raise InputError(f"'{recipe.model}' has no tokenizer: add tokenizer=PATH")
    return with_changes(model, recipe.change) if recipe.change else model


def check_length(model: Model, length: int) -> None:
    """Check that the model has enough positions for rows of this length."""
    if 0 < model.positions < length:
        raise InputError(
            f"length must be <= {model.positions}, the model's positions, got {length}: set length={model.positions}"
        )


def set_head(model: Model, kind: Kind[Any], settings: dict[str, Any], seed: int) -> None:
    """Replace all heads by a new head for the task, initialized from the seed.

    If the new head has a dense layer, it is copied from the previous head or from BERT's pooler where the activations
    and the pools match. Chang et al. start RTE, MRPC and STS-B from MNLI in this way.
    """
    previous = _dense_layers(model)
    model.heads.clear()
    model.head_settings.clear()
    head = add_head(model, kind.head, {**kind.head_settings(), **settings}, seed=seed)
    if isinstance(head, TextHead) and head.dense is not None and _variant(settings) in previous:
        head.dense.load_state_dict(previous[_variant(settings)])
    model.labels = tuple(getattr(kind, "labels", ()))


def _dense_layers(model: Model) -> dict[tuple[str, str], dict[str, torch.Tensor]]:
    """The dense layers of the existing heads, by activation and pool."""
    found = {}
    if "pooler" in model.heads:
        found["tanh", "cls"] = _copy_state(model.heads["pooler"].get_submodule("dense"))
    for kind in ("classify", "regress"):
        settings = model.head_settings.get(kind, {})
        if settings.get("hidden"):
            found[_variant(settings)] = _copy_state(model.heads[kind].get_submodule("dense"))
    return found


def _variant(settings: dict[str, Any]) -> tuple[str, str]:
    return settings.get("hidden") or "", settings.get("pool", "cls")


def _copy_state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
