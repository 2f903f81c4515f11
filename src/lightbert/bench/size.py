"""The size of a model: its exact parameters, and its FLOPs in both conventions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from lightbert.bench.electra_flops import Run, mlm_training, rtd_training
from lightbert.bench.flops import flops
from lightbert.models import Config, build
from lightbert.models.bert import Bert
from lightbert.models.convbert import ConvBert
from lightbert.models.generator import generator
from lightbert.models.papers import Pretraining

TOKENS = 128
"""The length of the text whose forward pass is counted, as in MobileBERT Table 4."""


@dataclass(frozen=True)
class Size:
    """Counts of one model. Parameters are exact; FLOPs are those of `bench.flops`, the plain convention."""

    parameters: int
    """Embeddings and blocks, without any head."""
    rtd_parameters: int
    """With the replaced-token head."""
    mlm_parameters: int
    """With the masked-language head; the tied word table counts once."""
    heads: dict[str, int]
    """The parameters of each head that the model carries."""
    forward: int
    """The body's FLOPs for one text of 128 tokens."""
    mixer_at_512: int
    """The first block's mixer, without the dense layer after it, for 512 tokens (ConvBERT Table 9)."""

    @property
    def flops_per_token(self) -> int:
        """The body's FLOPs for a text of 128 tokens, divided by 128."""
        return self.forward // TOKENS


def measure(config: Config, heads: Mapping[str, dict[str, Any]] | None = None) -> Size:
    """Count a model that is built without weights. `heads` are those it carries, with their settings."""
    carried = dict(heads or {})
    model = build(config, heads={"mlm": {}, "rtd": {}, **carried}, device="meta")
    body = _count(model.embeddings) + _count(model.blocks)
    return Size(
        parameters=body,
        rtd_parameters=body + _count(model.heads["rtd"]),
        mlm_parameters=body + _count(model.heads["mlm"]),
        heads={kind: _count(model.heads[kind]) for kind in carried},
        forward=flops(model, TOKENS),
        mixer_at_512=flops(model.blocks[0].get_submodule("mixer"), 512),
    )


def training(config: Config, plan: Pretraining) -> float | None:
    """FLOPs of a pre-training by ELECTRA's rules; None for families and objectives that those rules don't know."""
    run = Run(plan.batch, plan.steps, plan.length)
    if not isinstance(config, Bert | ConvBert) or plan.objective == "distill":
        return None
    if plan.generator is None:
        return mlm_training(config, run)
    return rtd_training(config, generator(config, float(plan.generator)), run)


def _count(part: nn.Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters())
