"""Every preset with reduced sizes and random weights."""

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from lightbert.models import PRESETS, Config, build
from lightbert.models.bert import Bert
from lightbert.models.composite import Composite
from lightbert.models.mobilebert import MobileBert
from lightbert.nn.encoder import Encoder
from randomised import randomised

VOCAB, POSITIONS, WIDTH, KERNEL = 50, 24, 16, 5


def small(config: Config) -> Config:
    sizes = {
        "vocab": VOCAB,
        "positions": POSITIONS if config.positions else 0,
        "narrow": 8 if config.narrow < config.width else WIDTH,
        "width": WIDTH,
        "depth": 2,
        "n_heads": 4,
        "inner": 24,
    }
    match config:
        case Composite():
            return replace(config, **sizes, radius=3, local_kernel=KERNEL)
        case MobileBert():
            return replace(config, **sizes, block_width=12 if config.block_width < config.width else 24)
        case Bert():
            return replace(config, **sizes)
    return replace(config, **sizes, kernel=KERNEL)


def _variants() -> dict[str, Config]:
    models = {name: small(config) for name, config in PRESETS.items()}
    models["composite, zero outside"] = replace(models["composite-small-key"], outside="zero")
    models["composite, local by key"] = replace(models["composite-small-convbert"], local="key")
    models["convbert, ratio 4"] = replace(models["convbert-small"], head_ratio=4)
    combined = {"convolution": "span", "kernel": KERNEL, "relative": "key", "radius": 3, "groups": 2}
    models["combined"] = replace(models["mobilebert"], **combined, depthwise=True, convolved="v")
    convbert, composite = models["convbert-small"], {"relative": "composite", "radius": 3}
    models["gated, composite"] = replace(convbert, convolution="gated", **composite)
    models["even, by the equations"] = replace(
        convbert, kernel=4, kernels_per_head=True, shared_values=True, depthwise=True
    )
    models["local, composite"] = replace(models["composite-small-convbert"], **composite)
    first_names = {config: name for name, config in reversed(models.items())}
    return {name: config for name, config in models.items() if first_names[config] == name}


VARIANTS = _variants()
"""Each distinct model once, by its first name."""

FAMILIES = {
    "bert": VARIANTS["bert-small"],
    "convbert": VARIANTS["convbert-medium-small"],
    "composite": VARIANTS["composite-small-composite-convqkv"],
    "composite, local": VARIANTS["composite-small-convbert"],
    "mobilebert": VARIANTS["mobilebert"],
    "combined": VARIANTS["combined"],
}
"""One model per family, for slow tests."""


@cache
def model_of(config: Config) -> Encoder:
    """Return a shared model in evaluation mode; don't modify it."""
    return randomised(build(config)).requires_grad_(False)


def ids(*shape: int) -> Tensor:
    return torch.randint(0, VOCAB, shape)


def assert_same_states(states: Tensor, expected: Tensor) -> None:
    """Check that states agree within 1e-5, relative to the largest state if the model has no normalization."""
    assert states.shape == expected.shape
    assert expected.isfinite().all()
    largest = expected.abs().amax().item() if expected.numel() else 0.0
    torch.testing.assert_close(states, expected, rtol=0, atol=1e-5 * max(1.0, largest))
