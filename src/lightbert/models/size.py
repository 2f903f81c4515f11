"""The size of a model: parameters, FLOPs, and training FLOPs by the rules of ELECTRA's counting script.

The script, whose figures are in the tables of ELECTRA and ConvBERT, counts every operation: 2·m·n per token for a
matmul, and a few per element for biases, dropout, LayerNorm, GELU and softmax. An embedding lookup counts as a product
with one-hot rows, a backward pass as much as a forward pass. `PAPER_FIGURES` are the rounded figures of the papers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from torch import nn

from lightbert.models import Config, build
from lightbert.models.bert import Bert
from lightbert.models.convbert import ConvBert
from lightbert.models.flops import flops
from lightbert.models.presets import generator

TOKENS = 128
"""The text length for FLOPs of a forward pass, as in MobileBERT Table 4."""


@dataclass(frozen=True)
class Size:
    """Parameters of a model, and FLOPs as counted by `models.flops`."""

    parameters: int
    """Embeddings and blocks, without any head."""
    rtd_parameters: int
    """With the replaced-token head."""
    mlm_parameters: int
    """With the masked language modelling head; tied embeddings count once."""
    heads: dict[str, int]
    """The parameters of each head of the model."""
    forward: int
    """FLOPs without heads for a text of 128 tokens."""
    mixer_at_512: int
    """FLOPs of the mixer of the first block, without the output layer, for 512 tokens (ConvBERT Table 9)."""

    @property
    def flops_per_token(self) -> int:
        """FLOPs without heads for a text of 128 tokens, divided by 128."""
        return self.forward // TOKENS


def measure(config: Config, heads: Mapping[str, dict[str, Any]] | None = None) -> Size:
    """Measure a model on the meta device. `heads`: the settings of its heads."""
    model = build(config, heads={"mlm": {}, "rtd": {}, **(heads or {})}, device="meta")
    body = _count(model.embeddings) + _count(model.blocks)
    return Size(
        parameters=body,
        rtd_parameters=body + _count(model.heads["rtd"]),
        mlm_parameters=body + _count(model.heads["mlm"]),
        heads={kind: _count(model.heads[kind]) for kind in heads or ()},
        forward=flops(model, TOKENS),
        mixer_at_512=flops(model.blocks[0].get_submodule("mixer"), 512),
    )


@dataclass(frozen=True)
class Pretraining:
    """Texts per step, steps and tokens per text; for replaced-token detection also the generator's size."""

    objective: Literal["rtd", "mlm", "distill"]
    batch: int
    steps: int
    length: int
    generator: Fraction | None = None


def training(config: Config, plan: Pretraining) -> float | None:
    """FLOPs of a pre-training by ELECTRA's rules; None for families and objectives that they don't cover."""
    run = Run(plan.batch, plan.steps, plan.length)
    if not isinstance(config, Bert | ConvBert) or plan.objective == "distill":
        return None
    if plan.generator is None:
        return mlm_training(config, run)
    return rtd_training(config, generator(config, float(plan.generator)), run)


def _count(part: nn.Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters())


DROPOUT, LAYER_NORM, ACTIVATION, SOFTMAX = 4, 5, 8, 5

PREDICTED = 0.15625
"""The fraction of tokens for which the script counts the softmax over the vocabulary: 20 of 128."""

Encoder = Bert | ConvBert


@dataclass(frozen=True)
class Run:
    """A pre-training run: texts per step, steps, tokens per text."""

    batch: int
    steps: int
    length: int


def mlm_training(config: Encoder, run: Run) -> float:
    """FLOPs of masked language modelling."""
    return 2 * run.batch * run.steps * run.length * (_body(config, run.length) + PREDICTED * _words(config))


def rtd_training(discriminator: Encoder, generator: Encoder, run: Run) -> float:
    """FLOPs of replaced-token detection: discriminator and generator, each with its head."""
    forward = _body(discriminator, run.length) + _replaced(discriminator)
    return 2 * run.batch * run.steps * run.length * forward + mlm_training(generator, run)


def _body(config: Encoder, length: int) -> int:
    """Forward FLOPs per token of embeddings and blocks."""
    return _embedding_flops(config, length) + config.depth * (_mixer(config, length) + _feedforward(config))


def _dense(inputs: int, outputs: int) -> int:
    return 2 * inputs * outputs + outputs


def _embedding_flops(config: Encoder, length: int) -> int:
    narrow = config.narrow
    one_hot = 2 * narrow * (config.vocab + length + 2)
    added = (2 + LAYER_NORM + DROPOUT) * narrow
    return one_hot + added + (_dense(narrow, config.width) if narrow != config.width else 0)


def _feedforward(config: Encoder) -> int:
    width, inner = config.width, config.inner
    matmuls = 2 * 2 * width * inner // config.groups
    return matmuls + (1 + ACTIVATION) * inner + (1 + DROPOUT + 1 + LAYER_NORM) * width


def _mixer(config: Encoder, length: int) -> int:
    if isinstance(config, Bert):
        # As in the script, which counts this LayerNorm once instead of once per channel.
        whole = _attention(config.width, config.width, config.n_heads, length)
        return whole + _output(config.width, config.width) + LAYER_NORM
    heads = config.reduced_heads
    inner = heads * (config.width // config.n_heads)
    mixed = _attention(config.width, inner, heads, length) + _convolution(config, inner, heads)
    concatenated = inner if config.convolution == "none" else 2 * inner
    return mixed + _output(concatenated, config.width) + LAYER_NORM * config.width


def _attention(width: int, inner: int, heads: int, length: int) -> int:
    # Scores and weighted sum are 2·inner each per key; scale, softmax and dropout are per head and key.
    return 3 * _dense(width, inner) + length * (4 * inner + (1 + SOFTMAX + DROPOUT) * heads)


def _output(inputs: int, width: int) -> int:
    """The dense layer after the mixer, its dropout and residual."""
    return _dense(inputs, width) + (DROPOUT + 1) * width


def _convolution(config: ConvBert, inner: int, heads: int) -> int:
    """The convolution heads, which the script doesn't cover, counted by its rules."""
    width, taps = config.width, config.kernel
    separable = 2 * width * taps + _dense(width, inner)
    dynamic = _dense(inner, heads * taps) + SOFTMAX * heads * taps + _dense(width, inner) + 2 * inner * taps
    counts = {"span": separable + inner + dynamic, "dynamic": dynamic, "conventional": separable, "none": 0}
    return counts[config.convolution]


def _words(config: Encoder) -> int:
    """The masked language modelling head, per predicted token."""
    narrow, vocab = config.narrow, config.vocab
    transform = _dense(config.width, narrow) + (ACTIVATION + LAYER_NORM) * narrow
    return transform + (2 * narrow + SOFTMAX + 2) * vocab


def _replaced(config: Encoder) -> int:
    """The replaced-token head, per token."""
    return _dense(config.width, config.width) + (ACTIVATION + 2) * config.width


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
