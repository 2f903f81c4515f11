"""The config of the generator that replaced-token detection trains together with the discriminator."""

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
    """Scale width, feed-forward and heads by ``multiplier``; mixer and depth stay the same (ConvBERT §6.2, Table 5).

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
