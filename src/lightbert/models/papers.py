"""The papers' figures for each preset and its pre-training. They are rounded; exact counts are computed elsewhere."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal


@dataclass(frozen=True)
class Pretraining:
    """Texts per step, steps and tokens per text; for replaced-token detection also the generator's size."""

    objective: Literal["rtd", "mlm", "distill"]
    batch: int
    steps: int
    length: int
    generator: Fraction | None = None


@dataclass(frozen=True)
class PaperFigures:
    """A row of a table in a paper."""

    source: str
    millions: float
    """Parameters in millions."""
    counts: Literal["parameters", "mlm_parameters"] = "parameters"
    """Which of our counts the figure corresponds to; the composite paper includes the MLM head."""
    flops: float | None = None
    """Forward, 128 tokens."""
    training_flops: float | None = None
    pretraining: Pretraining | None = None


_RTD_SMALL = Pretraining("rtd", batch=128, steps=1_000_000, length=128, generator=Fraction(1, 4))
_RTD_BASE = Pretraining("rtd", batch=256, steps=1_000_000, length=128, generator=Fraction(1, 3))
_RTD_ELECTRA_BASE = Pretraining("rtd", batch=256, steps=766_000, length=512, generator=Fraction(1, 3))
_MLM_SMALL = Pretraining("mlm", batch=128, steps=125_000, length=128)
_MLM_BASE = Pretraining("mlm", batch=256, steps=1_000_000, length=128)
# 24 progressive stages of 10,000 steps, then 500,000 steps of pre-training distillation. The batch size is from the
# paper, the length from the notes of the released script.
_PROGRESSIVE = Pretraining("distill", batch=4096, steps=740_000, length=512)
_TEACHER = Pretraining("mlm", batch=4096, steps=500_000, length=512)

_TABLE_1 = PaperFigures("ConvBERT Table 1", 14, pretraining=_RTD_SMALL)
_TABLES_1_3 = replace(_TABLE_1, source="ConvBERT Tables 1 and 3")
_MOBILE = PaperFigures("MobileBERT Tables 1 and 4", 25.3, flops=5.7e9, pretraining=_PROGRESSIVE)


def _composite(table: int, millions: float) -> PaperFigures:
    return PaperFigures(f"Chang et al. Table {table}", millions, "mlm_parameters", pretraining=_MLM_SMALL)


def _composite_base(millions: float) -> PaperFigures:
    return replace(_composite(1, millions), pretraining=_MLM_BASE)


PAPER_FIGURES: dict[str, PaperFigures] = {
    "bert-small": replace(_TABLES_1_3, training_flops=1.4e18),
    "bert-medium-small": replace(_TABLE_1, millions=26),
    "bert-base": PaperFigures(
        "ConvBERT Tables 1 and 3, MobileBERT Table 4",
        110,
        flops=22.5e9,
        training_flops=6.4e19,
        pretraining=_RTD_ELECTRA_BASE,
    ),
    "convbert-small": replace(_TABLES_1_3, training_flops=1.3e18),
    "convbert-medium-small": replace(_TABLES_1_3, millions=17, training_flops=1.5e18),
    "convbert-base": replace(_TABLES_1_3, millions=106, training_flops=1.9e19, pretraining=_RTD_BASE),
    "convbert-small-bnk": replace(_TABLE_1, millions=12),
    "convbert-base-bnk": replace(_TABLE_1, millions=96, pretraining=_RTD_BASE),
    "convbert-medium-small-bnk": replace(_TABLE_1, millions=23),
    "convbert-medium-small-bnk-gl": _TABLE_1,
    "convbert-medium-small-bnk-gl-larger": replace(_TABLE_1, millions=17),
    "composite-small": _composite(1, 13.43),
    "composite-small-none": _composite(1, 13.41),
    "composite-small-absolute": _composite(1, 13.43),
    "composite-small-fixed": _composite(1, 13.42),
    "composite-small-dynamic": _composite(1, 13.43),
    "composite-small-key": _composite(6, 13.44),
    "composite-small-depthwise": _composite(2, 13.47),
    "composite-small-composite-depthwise": _composite(2, 13.48),
    "composite-small-convqk": _composite(3, 13.53),
    "composite-small-convv": _composite(3, 13.47),
    "composite-small-convqkv": _composite(3, 13.58),
    "composite-small-composite-convqk": _composite(3, 13.54),
    "composite-small-composite-convv": _composite(3, 13.48),
    "composite-small-composite-convqkv": _composite(3, 13.59),
    "composite-small-convbert": _composite(6, 13.09),
    "composite-base": _composite_base(108.74),
    "composite-base-absolute": _composite_base(108.82),
    "composite-base-fixed": _composite_base(108.73),
    "composite-base-dynamic": _composite_base(108.74),
    "mobilebert": _MOBILE,
    "mobilebert-paper": _MOBILE,
    "mobilebert-no-opt": replace(_MOBILE, source="MobileBERT Table 4"),
    "mobilebert-tiny": replace(_MOBILE, millions=15.1, flops=3.1e9),
    "ib-bert-large": PaperFigures("MobileBERT Table 1", 293, pretraining=_TEACHER),
}
"""Preset -> the figures of its paper. The two convolutions of ConvBERT Table 2 and our tiny presets have no figures."""
