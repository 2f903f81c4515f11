"""The presets by name, which are public API; the generator of a preset."""

from dataclasses import replace
from typing import TypeVar

from lightbert.errors import InputError
from lightbert.models.bert import Bert
from lightbert.models.composite import Composite
from lightbert.models.convbert import ConvBert
from lightbert.models.hybrid import Hybrid
from lightbert.models.mobilebert import MobileBert

Config = Bert | ConvBert | Composite | MobileBert | Hybrid
AnyConfig = TypeVar("AnyConfig", bound=Config)

_CONVBERT_SMALL = ConvBert(narrow=128, width=256, n_heads=4, inner=1024)
_CONVBERT_MEDIUM_SMALL = ConvBert(narrow=128, width=384, n_heads=8, inner=1536, groups=2)
_COMPOSITE_SMALL = Composite()
_NO_TERMS = Composite(fixed=False, query_dynamic=False)
_COMPOSITE_BASE = Composite(narrow=768, width=768, n_heads=12, inner=3072)
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
    "composite-base-absolute": replace(_COMPOSITE_BASE, positions=128, fixed=False, query_dynamic=False),
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

    Width, feed-forward and heads are scaled by ``multiplier``; mixer and depth stay the same (ConvBERT §6.2, Table 5).

    Deviation: ELECTRA's own generators have one head per 64 channels; we use ConvBERT's rule for all families.
    """
    if isinstance(config, MobileBert) or (isinstance(config, Hybrid) and config.shell != "post-norm"):
        raise InputError("replaced-token detection doesn't support bottleneck models; pre-train with mlm, or distil")
    width = round(config.width * multiplier)
    heads = max(1, int(config.n_heads * multiplier))
    if width < 1 or width % heads:
        raise InputError(
            f"the generator's heads ({heads}) must divide its width, {multiplier} × {config.width} = {width}"
        )
    return replace(config, width=width, inner=4 * width, n_heads=heads)
