"""BERT (with ELECTRA's factorized embeddings) in one file: the baseline, and functions that the other files share.

``weights`` is a state dict, or the part of one under a prefix (``under``). ``keep`` [B, T] is False in the padding.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = Mapping[str, Tensor]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "relu6": F.relu6,
}


def bert(
    weights: Weights,
    ids: Tensor,
    *,
    keep: Tensor | None = None,
    segments: Tensor | None = None,
    depth: int,
    n_heads: int,
    activation: str = "gelu",
    eps: float = 1e-12,
) -> Tensor:
    """Return the states [B, T, D] of a post-norm Transformer encoder with factorized embeddings."""
    keep = torch.ones_like(ids, dtype=torch.bool) if keep is None else keep
    x = embed(weights, ids, segments, keep, eps)
    for block in (under(weights, f"blocks.{i}") for i in range(depth)):
        query, key, value = (split(linear(block, f"mixer.{name}", x), n_heads) for name in ("query", "key", "value"))
        x = close(block, x, attend(content_scores(query, key), value, keep[:, None, None]), activation, eps)
    return x


def embed(weights: Weights, ids: Tensor, segments: Tensor | None, counted: Tensor, eps: float) -> Tensor:
    """Word + segment (+ position) → norm (→ projection to the width). Positions number the ``counted`` tokens."""
    x = weights["embeddings.word.weight"][ids]
    x = x + weights["embeddings.segment.weight"][torch.zeros_like(ids) if segments is None else segments]
    if "embeddings.position.weight" in weights:
        x = x + weights["embeddings.position.weight"][positions(counted)]
    x = layer_norm(weights, "embeddings.norm", x, eps)
    return linear(weights, "embeddings.project", x) if "embeddings.project.weight" in weights else x


def positions(counted: Tensor) -> Tensor:
    """Number the counted tokens of each row 0, 1, 2, …; other tokens repeat the previous position."""
    return (counted.cumsum(1) - 1).clamp(min=0)


def content_scores(query: Tensor, key: Tensor) -> Tensor:
    """q·k/√E, every query against every key [B, H, T, T]."""
    return query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])


def attend(scores: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    """Softmax over the allowed keys times the values, heads merged [B, T, H·E]. A row without keys stays finite."""
    weight = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1)
    return (weight @ value).transpose(1, 2).flatten(2)


def close(block: Weights, x: Tensor, context: Tensor, activation: str, eps: float) -> Tensor:
    """The rest of a post-norm block: output projection, residual, norm; feed-forward, residual, norm."""
    x = layer_norm(block, "norm", x + linear(block, "output", context), eps)
    inner = ACTIVATIONS[activation](linear(block, "feedforward.up", x))
    return layer_norm(block, "feedforward.norm", x + linear(block, "feedforward.down", inner), eps)


def mlm_logits(weights: Weights, states: Tensor, *, activation: str = "gelu", eps: float = 1e-12) -> Tensor:
    """Return MLM logits [B, T, V]: the decoder is the word embeddings, plus ``extra`` in MobileBERT."""
    head = under(weights, "heads.mlm")
    x = layer_norm(head, "norm", ACTIVATIONS[activation](linear(head, "transform", states)), eps)
    table = weights["embeddings.word.weight"]
    if "extra" in head:
        table = torch.cat([table, head["extra"]], dim=1)
    return F.linear(x, table, head["bias"])


def rtd_logits(weights: Weights, states: Tensor, *, activation: str = "gelu") -> Tensor:
    """Return ELECTRA's replaced-token logits [B, T]."""
    head = under(weights, "heads.rtd")
    return linear(head, "output", ACTIVATIONS[activation](linear(head, "dense", states))).squeeze(-1)


def under(weights: Weights, name: str) -> Weights:
    """Return the weights whose names start with a prefix, without the prefix."""
    return {key.removeprefix(f"{name}."): weight for key, weight in weights.items() if key.startswith(f"{name}.")}


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    """Apply the dense layer of that name."""
    return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def layer_norm(weights: Weights, name: str, x: Tensor, eps: float) -> Tensor:
    """Apply the LayerNorm of that name."""
    return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], eps)


def split(x: Tensor, n_heads: int) -> Tensor:
    """[B, T, H·E] → heads [B, H, T, E]."""
    return x.reshape(*x.shape[:2], n_heads, x.shape[2] // n_heads).transpose(1, 2)
