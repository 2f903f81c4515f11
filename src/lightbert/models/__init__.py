"""The models: a flat config per paper, and every preset by name."""

from collections.abc import Mapping
from typing import Any

import torch

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import unknown
from lightbert.models.bert import Bert
from lightbert.models.composite import Composite
from lightbert.models.convbert import ConvBert
from lightbert.models.heads import add_head
from lightbert.models.hybrid import Hybrid
from lightbert.models.mobilebert import MobileBert
from lightbert.models.presets import PRESETS, Config
from lightbert.nn.encoder import Encoder
from lightbert.nn.init import initialize, seed_from_torch

FAMILIES: dict[str, type[Config]] = {
    "bert": Bert,
    "convbert": ConvBert,
    "composite": Composite,
    "mobilebert": MobileBert,
    "hybrid": Hybrid,
}

__all__ = ["FAMILIES", "PRESETS", "Config", "add_head", "build", "preset"]


def preset(name: str) -> Config:
    """The config of a preset; an unknown name is answered with the nearest one."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


def _check(config: Config) -> None:
    """Check types, choices and ranges, also of a config that was made in Python."""
    from_mapping(type(config), to_mapping(config))


def build(
    model: str | Config,
    heads: Mapping[str, dict[str, Any]] | None = None,
    device: str | torch.device | None = None,
    seed: int | None = None,
) -> Encoder:
    """Build a model with random weights from a preset's name or a config.

    heads: kind -> settings, such as ``{"mlm": {}, "classify": {"labels": 3}}``. On the device "meta" the model has
    shapes but no weights, which is how parameters are counted.
    seed: the same seed gives the same weights on every machine, to the last bit. Without one, a seed is drawn from
    PyTorch's generator, so that ``torch.manual_seed`` decides.
    """
    config = preset(model) if isinstance(model, str) else model
    _check(config)
    # Building without memory first draws every weight once instead of twice.
    with torch.device("meta"):
        encoder = config.build()
    encoder.config = config
    device = torch.device(device) if device is not None else torch.get_default_device()
    if device.type != "meta":
        seed = seed_from_torch() if seed is None else seed
        encoder.to_empty(device=device)
        initialize(encoder, seed)
    for kind, settings in (heads or {}).items():
        add_head(encoder, kind, settings, seed=seed)
    return encoder
