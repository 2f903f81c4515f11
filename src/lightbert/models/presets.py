"""The presets by name, which are public API; the generator of a preset."""

from dataclasses import replace
from typing import TypeVar

import torch

from lightbert.errors import InputError
from lightbert.models.architecture import Architecture
from lightbert.models.bert import Bert
from lightbert.models.composite import Composite
from lightbert.models.convbert import ConvBert
from lightbert.models.mobilebert import MobileBert

Config = Architecture
AnyConfig = TypeVar("AnyConfig", bound=Architecture)

_CONVBERT_SMALL = ConvBert(narrow=128, width=256, n_heads=4, inner=1024)
_CONVBERT_MEDIUM_SMALL = ConvBert(narrow=128, width=384, n_heads=8, inner=1536, groups=2)
_COMPOSITE_SMALL = Composite(initial="normal")
_NO_TERMS = replace(_COMPOSITE_SMALL, relative="none")
_COMPOSITE_BASE = replace(_COMPOSITE_SMALL, narrow=768, width=768, n_heads=12, inner=3072)
_TINY = {"vocab": 8192, "positions": 128, "narrow": 64, "width": 128, "depth": 4, "n_heads": 4, "inner": 512}
_NANO = {"vocab": 8192, "positions": 128, "narrow": 32, "width": 128, "depth": 4}

PRESETS: dict[str, Config] = {
    "bert-small": Bert(narrow=128, width=256, n_heads=4, inner=1024),
    "bert-medium-small": Bert(narrow=128, width=384, n_heads=8, inner=1536),
    "bert-base": Bert(),
    "convbert-small": _CONVBERT_SMALL,
    "convbert-medium-small": _CONVBERT_MEDIUM_SMALL,
    "convbert-base": ConvBert(),
    "convbert-small-bnk": replace(_CONVBERT_SMALL, convolution="none"),
    "convbert-base-bnk": ConvBert(convolution="none"),
    "convbert-medium-small-bnk": replace(_CONVBERT_MEDIUM_SMALL, convolution="none", groups=1),
    "convbert-medium-small-bnk-gl": replace(_CONVBERT_MEDIUM_SMALL, convolution="none"),
    "convbert-medium-small-bnk-gl-larger": replace(_CONVBERT_MEDIUM_SMALL, convolution="none", width=432, inner=1728),
    "convbert-small-dynamic": replace(_CONVBERT_SMALL, convolution="dynamic"),
    "convbert-small-conventional": replace(_CONVBERT_SMALL, convolution="conventional"),
    "composite-small": _COMPOSITE_SMALL,
    "composite-small-none": _NO_TERMS,
    "composite-small-absolute": replace(_NO_TERMS, positions=128),
    "composite-small-fixed": replace(_NO_TERMS, fixed=True),
    "composite-small-dynamic": replace(_NO_TERMS, query_dynamic=True),
    "composite-small-key": replace(_COMPOSITE_SMALL, key_dynamic=True),
    "composite-small-depthwise": replace(_NO_TERMS, depthwise=True),
    "composite-small-composite-depthwise": replace(_COMPOSITE_SMALL, depthwise=True),
    "composite-small-convqk": replace(_NO_TERMS, convolved="qk"),
    "composite-small-convv": replace(_NO_TERMS, convolved="v"),
    "composite-small-convqkv": replace(_NO_TERMS, convolved="qkv"),
    "composite-small-composite-convqk": replace(_COMPOSITE_SMALL, convolved="qk"),
    "composite-small-composite-convv": replace(_COMPOSITE_SMALL, convolved="v"),
    "composite-small-composite-convqkv": replace(_COMPOSITE_SMALL, convolved="qkv"),
    "composite-small-convbert": replace(_NO_TERMS, positions=128, local="query"),
    "composite-base": _COMPOSITE_BASE,
    "composite-base-absolute": replace(_COMPOSITE_BASE, positions=128, relative="none"),
    "composite-base-fixed": replace(_COMPOSITE_BASE, query_dynamic=False),
    "composite-base-dynamic": replace(_COMPOSITE_BASE, fixed=False),
    "mobilebert": MobileBert(),
    "mobilebert-paper": MobileBert(mixer_input="wide"),
    "mobilebert-no-opt": MobileBert(norm="layer", activation="gelu_tanh"),
    "mobilebert-tiny": MobileBert(mixer_input="narrow", feedforwards=2),
    "ib-bert-large": MobileBert(
        block_width=1024,
        inner=4096,
        feedforwards=1,
        mixer_input="wide",
        norm="layer",
        activation="gelu_tanh",
        dropout=0.1,
    ),
    "bert-tiny": Bert(**_TINY),  # type: ignore[arg-type]
    "convbert-tiny": ConvBert(**_TINY),  # type: ignore[arg-type]
    "composite-tiny": replace(Composite(**_TINY), positions=0),  # type: ignore[arg-type]
    "mobilebert-nano": MobileBert(**_NANO, block_width=32, inner=128, feedforwards=2),  # type: ignore[arg-type]
    "ib-bert-nano": MobileBert(
        **_NANO,  # type: ignore[arg-type]
        block_width=256,
        inner=512,
        feedforwards=1,
        mixer_input="wide",
        norm="layer",
        activation="gelu_tanh",
        dropout=0.1,
    ),
}


def generator(config: AnyConfig, multiplier: float) -> AnyConfig:
    """The config of the generator that replaced-token detection trains together with the discriminator.

    Widths, feed-forward and heads are scaled by ``multiplier``; mixer and depth stay the same (ConvBERT §6.2, Table 5).

    Deviation: ELECTRA's own generators have one head per 64 channels; we use ConvBERT's rule for all families.
    """
    width, block_width = (round(size * multiplier) for size in (config.width, config.block_width))
    inside, heads = block_width or width, max(1, int(config.n_heads * multiplier))
    if inside < 1 or inside % heads:
        raise InputError(
            f"the generator's heads ({heads}) must divide its width, {multiplier} × {config.inside} = {inside}"
        )
    small = replace(config, width=width, block_width=block_width, inner=4 * inside, n_heads=heads)
    try:
        with torch.device("meta"):
            replace(small, depth=1).build()
    except InputError as error:
        raise InputError(
            f"generator = {multiplier} gives a generator of width {inside} with {heads} heads, which can't be built: "
            f"{error}; set generator= to another size"
        ) from None
    return small
