"""The size of a model: parameters, and FLOPs in both conventions."""

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
"""The text length for FLOPs of a forward pass, as in MobileBERT Table 4."""


@dataclass(frozen=True)
class Size:
    """Parameters of a model, and FLOPs as counted by `bench.flops`."""

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
    given = dict(heads or {})
    model = build(config, heads={"mlm": {}, "rtd": {}, **given}, device="meta")
    body = _count(model.embeddings) + _count(model.blocks)
    return Size(
        parameters=body,
        rtd_parameters=body + _count(model.heads["rtd"]),
        mlm_parameters=body + _count(model.heads["mlm"]),
        heads={kind: _count(model.heads[kind]) for kind in given},
        forward=flops(model, TOKENS),
        mixer_at_512=flops(model.blocks[0].get_submodule("mixer"), 512),
    )


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
