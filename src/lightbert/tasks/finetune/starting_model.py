"""The model a fine-tuning run starts from: read or built, changed where the recipe says so, with the task's head."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from lightbert.config import from_mapping, to_mapping
from lightbert.data.corpus import tokenizer as tokenizers
from lightbert.errors import InputError
from lightbert.interop.load import read
from lightbert.interop.names import Preset, find
from lightbert.models import PRESETS, Model, add_head, build
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.tasks.kinds.kind import Kind


def starting_model(recipe: FinetuneRecipe) -> Model:
    """Read the recipe's model, or build its preset with weights drawn from the seed; it has a tokenizer."""
    found = find(recipe.model.format(seed=recipe.seed))
    if isinstance(found, Preset):
        if not recipe.tokenizer:
            raise InputError(
                f"the preset '{recipe.model}' has no tokenizer: add tokenizer=PATH, or give the folder of a trained "
                "model"
            )
        tokenizer = tokenizers.load(recipe.tokenizer)
        changes = {"vocab": tokenizer.get_vocab_size(), **recipe.change}
        preset = PRESETS[found.name]
        model = build(from_mapping(type(preset), {**to_mapping(preset), **changes}), seed=recipe.seed)
        model.tokenizer = tokenizer
        return model
    model = read(found)
    if recipe.tokenizer:
        model.tokenizer = tokenizers.load(recipe.tokenizer)
    if model.tokenizer is None:
        raise InputError(f"'{recipe.model}' has no tokenizer: add tokenizer=PATH")
    return _changed(model, recipe.change) if recipe.change else model


def _changed(model: Model, change: dict[str, Any]) -> Model:
    """The same weights under a config that differs, such as in its dropout or its treatment of padding."""
    config = from_mapping(type(model.config), {**to_mapping(model.config), **change})
    changed = build(config, heads=model.head_settings)
    try:
        changed.load_state_dict(model.state_dict())
    except RuntimeError as error:
        raise InputError(f"the weights do not fit the model after change = {change}: {error}") from None
    changed.metadata = replace(model.metadata, config=config)
    return changed


def refuse_length(model: Model, length: int) -> None:
    """Refuse rows that are longer than the model."""
    if 0 < model.positions < length:
        raise InputError(
            f"length = {length}, but the model reads {model.positions} tokens at most: set length={model.positions}"
        )


def give_head(model: Model, kind: Kind[Any], settings: dict[str, Any], seed: int) -> None:
    """Replace all heads by the task's, drawn from the seed; the dense layer of an earlier head or a pooler is kept.

    An intermediate task hands its dense layer on (Chang et al. start RTE, MRPC and STS-B from MNLI so), and BERT's
    pooler is that layer of a tanh head.
    """
    inherited = _dense_layers(model)
    model.heads.clear()
    model.head_settings.clear()
    head = add_head(model, kind.head, {**kind.head_settings(), **settings}, seed=seed)
    dense, hidden = getattr(head, "dense", None), settings.get("hidden")
    if isinstance(dense, nn.Linear) and hidden in inherited:
        dense.load_state_dict(inherited[hidden])
    model.labels = tuple(getattr(kind, "labels", ()))


def _dense_layers(model: Model) -> dict[Any, dict[str, torch.Tensor]]:
    """The dense layers of text heads by their activation."""
    found = {}
    if "pooler" in model.heads:
        found["tanh"] = _copied(model.heads["pooler"].get_submodule("dense"))
    for kind in ("classify", "regress"):
        hidden = model.head_settings.get(kind, {}).get("hidden")
        if hidden:
            found[hidden] = _copied(model.heads[kind].get_submodule("dense"))
    return found


def _copied(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
