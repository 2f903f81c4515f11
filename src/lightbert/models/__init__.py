"""Models: a flat config per paper, and the presets by name."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import torch

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError, unknown
from lightbert.models.bert import Bert
from lightbert.models.composite import Composite
from lightbert.models.convbert import ConvBert
from lightbert.models.mobilebert import MobileBert
from lightbert.models.model import Metadata, Model, add_head
from lightbert.models.presets import PRESETS, Config
from lightbert.nn.init import Normal, initialize, seed_from_torch

FAMILIES: dict[str, type[Config]] = {
    "bert": Bert,
    "convbert": ConvBert,
    "composite": Composite,
    "mobilebert": MobileBert,
}

__all__ = ["FAMILIES", "PRESETS", "Config", "Metadata", "Model", "add_head", "build", "preset"]


def preset(name: str) -> Config:
    """Return the config of a preset; for an unknown name, the error suggests the nearest one."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


def _check(config: Config) -> None:
    """Check the types, choices and ranges of a config that was created in Python."""
    if not is_dataclass(config) or isinstance(config, type):
        raise InputError(f"model must be the name of a preset or a config, got {config!r}")
    from_mapping(type(config), to_mapping(config))


def build(
    model: str | Config,
    heads: Mapping[str, dict[str, Any]] | None = None,
    device: str | torch.device | None = None,
    seed: int | None = None,
) -> Model:
    """Build a model with random weights from a preset's name or a config.

    heads: kind -> settings, such as ``{"mlm": {}, "classify": {"labels": 3}}``.
    device: on "meta" the model has shapes but no weights, which is enough to count parameters.
    seed: the same seed gives the same weights on every machine, to the last bit. By default a seed is drawn from
    PyTorch's generator, which ``torch.manual_seed`` controls.
    """
    config = preset(model) if isinstance(model, str) else model
    _check(config)
    if heads is not None and not isinstance(heads, Mapping):
        raise InputError(f"heads must map kinds to their settings, such as {{'mlm': {{}}}}, got {heads!r}")
    # Building on the meta device avoids initializing every weight twice.
    with torch.device("meta"):
        built = Model(config.build(), Metadata(config))
    device = torch.device(device) if device is not None else torch.get_default_device()
    if device.type != "meta":
        seed = seed_from_torch() if seed is None else seed
        built.to_empty(device=device)
        initialize(built, seed, matrices=Normal() if config.initial == "normal" else None)
    for kind, settings in (heads or {}).items():
        add_head(built, kind, settings, seed=seed)
    return built
