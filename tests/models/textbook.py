"""Any combination of the papers' parts as a textbook composition of the functions in `papers`."""

from functools import partial

import torch
from torch import Tensor

from lightbert.models import Config
from lightbert.papers import mobilebert
from lightbert.papers.bert import Weights, attend, embed, layer_norm, linear, split, under
from lightbert.papers.composite import composite_scores, project
from lightbert.papers.convbert import convolve, depthwise_convolution, feedforward


def encode(config: Config, weights: Weights, ids: Tensor, keep: Tensor) -> Tensor:
    """Return the states [B, T, D] of a model without dropout and released padding."""
    norm = mobilebert.no_norm if config.norm == "none" else partial(layer_norm, eps=config.eps)
    if config.trigrams:
        x = mobilebert.embed(under(weights, "embeddings"), ids, None, keep, norm)
    else:
        assert config.norm == "layer", "the function of the papers normalizes"
        x = embed(weights, ids, None, keep, config.eps)
    for block in (under(weights, f"blocks.{i}") for i in range(config.depth)):
        mixed = mixer(config, under(block, "mixer"), *streams(config, block, x, norm), keep)
        inside = norm(block, "enter_norm", linear(block, "enter", x)) if config.block_width else x
        y = norm(block, "norm", inside + linear(block, "output", mixed))
        numbered = "feedforward.0.up.weight" in block
        for stage in (f"feedforward.{j}" for j in range(config.feedforwards)) if numbered else ("feedforward",):
            part = under(block, stage)
            y = norm(part, "norm", y + feedforward(part, y, config.activation))
        x = norm(block, "leave_norm", x + linear(block, "leave", y)) if config.block_width else y
    return x


def streams(config: Config, block: Weights, x: Tensor, norm: mobilebert.Norm) -> tuple[Tensor, Tensor]:
    """What the mixer reads: tokens and values."""
    if not config.block_width or config.mixer_input == "wide":
        return x, x
    if config.mixer_input == "shared":
        return norm(block, "shared_norm", linear(block, "shared", x)), x
    inside = norm(block, "enter_norm", linear(block, "enter", x))
    return inside, inside


def mixer(config: Config, weights: Weights, x: Tensor, value_input: Tensor, keep: Tensor) -> Tensor:
    """Attention with the terms of the composite paper, beside the convolution heads of ConvBERT."""
    n_heads = config.reduced_heads
    query, key = (project(weights, name, x, keep) for name in ("query", "key"))
    value = project(weights, "value", value_input, keep)
    scores = composite_scores(weights, split(query, n_heads), split(key, n_heads), config.outside)
    mixed = attend(scores, split(value, n_heads), keep[:, None, None])
    if config.depthwise:
        kernels, bias = weights["depthwise.weight"], weights["depthwise.bias"]
        mixed = mixed + depthwise_convolution(value * keep[..., None], kernels, bias)
    if config.convolution == "none":
        return mixed
    part = under(weights, "convolution")
    beside = convolve(part, config.convolution, x, value_input, query, value, keep, n_heads)
    return torch.cat([mixed, beside], dim=-1)
