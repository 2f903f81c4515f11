"""The model class that `lightbert.load` and `lightbert.build` return."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lightbert import models
from lightbert.interop import load as interop
from lightbert.models import Config, Model
from lightbert.tasks.predict.text_methods import TextMethods


class TextModel(TextMethods, Model):
    """A model with methods for texts. ``model(ids, mask)`` returns hidden states, as with every encoder."""


def load_text_model(name: str | Path) -> TextModel:
    """Load a model by name; exported models are loaded by `lightbert.load`."""
    model = interop.load(name)
    return TextModel(model, model.metadata)


def build(
    model: str | Config,
    heads: Mapping[str, dict[str, Any]] | None = None,
    device: str | torch.device | None = None,
    seed: int | None = None,
) -> TextModel:
    """Build a model with random weights from a preset's name or a config.

    heads: kind -> settings, such as ``{"mlm": {}, "classify": {"labels": 3}}``. On the device "meta" the model has
    shapes but no weights, which is enough to count parameters.
    seed: the same seed gives the same weights on every machine, bit for bit. Without a seed, one is drawn from
    PyTorch's global generator, which ``torch.manual_seed`` controls.

    The model has no tokenizer: set ``model.tokenizer`` to use it with texts.
    """
    built = models.build(model, heads, device, seed)
    return TextModel(built, built.metadata)
