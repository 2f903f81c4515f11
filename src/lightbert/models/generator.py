"""The small model that replaced-token detection trains beside the real one."""

from dataclasses import replace
from typing import TypeVar

from lightbert.errors import InputError
from lightbert.models.bert import Bert
from lightbert.models.composite import Composite
from lightbert.models.convbert import ConvBert
from lightbert.models.hybrid import Hybrid
from lightbert.models.mobilebert import MobileBert

AnyConfig = TypeVar("AnyConfig", bound=Bert | ConvBert | Composite | MobileBert | Hybrid)


def generator(config: AnyConfig, multiplier: float) -> AnyConfig:
    """The same mixers and depth at ``multiplier`` times the width, feed-forward and heads (ConvBERT §6.2, Table 5).

    Deviation: ELECTRA itself gives its generators one head per 64 channels; ConvBERT's rule is used for all.
    """
    if isinstance(config, MobileBert) or (isinstance(config, Hybrid) and config.shell != "post-norm"):
        raise InputError("a bottleneck model has no generator of its own size: pre-train it by mlm, or distil it")
    width = round(config.width * multiplier)
    heads = max(1, int(config.n_heads * multiplier))
    if width < 1 or width % heads:
        raise InputError(f"a generator of {multiplier} × {config.width} channels cannot be shared by {heads} heads")
    return replace(config, width=width, inner=4 * width, n_heads=heads)
