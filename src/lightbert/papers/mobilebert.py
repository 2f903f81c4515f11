"""MobileBERT and its teacher IB-BERT (Sun et al., 2020) in one file: (inverted) bottleneck blocks.

Deviation: ``mixer_input="shared"`` is the released model, in which query and key share a separate bottleneck. In the
paper's Table 1 query, key and value read the wide stream ("wide"), in its tiny model the narrow one ("narrow").
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.papers.bert import (
    ACTIVATIONS,
    Weights,
    attend,
    content_scores,
    layer_norm,
    linear,
    positions,
    split,
    under,
)

Norm = Callable[[Weights, str, Tensor], Tensor]


def mobilebert(
    weights: Weights,
    ids: Tensor,
    *,
    keep: Tensor | None = None,
    segments: Tensor | None = None,
    depth: int,
    n_heads: int,
    feedforwards: int = 4,
    mixer_input: str = "shared",
    norm: str = "none",
    released_padding: bool = False,
    activation: str = "relu",
    eps: float = 1e-12,
) -> Tensor:
    """Return the states [B, T, D]. ``norm`` is "none" or "layer"; ``released_padding`` lets trigrams read padding."""
    keep = torch.ones_like(ids, dtype=torch.bool) if keep is None else keep
    read = torch.ones_like(keep) if released_padding else keep
    normalise: Norm = no_norm if norm == "none" else partial(layer_norm, eps=eps)
    x = embed(under(weights, "embeddings"), ids, segments, read, normalise)
    for block in (under(weights, f"blocks.{i}") for i in range(depth)):
        narrow = normalise(block, "enter_norm", linear(block, "enter", x))
        context = attention(block, x, narrow, keep, n_heads, mixer_input, normalise)
        y = normalise(block, "norm", narrow + linear(block, "output", context))
        for stage in (under(block, f"feedforward.{j}") for j in range(feedforwards)):
            inner = ACTIVATIONS[activation](linear(stage, "up", y))
            y = normalise(stage, "norm", y + linear(stage, "down", inner))
        x = normalise(block, "leave_norm", x + linear(block, "leave", y))
    return x


def embed(weights: Weights, ids: Tensor, segments: Tensor | None, read: Tensor, normalise: Norm) -> Tensor:
    """§3.4: trigrams of narrow word embeddings, projected, + position + segment, normalized."""
    x = linear(weights, "project", trigrams(weights["word.weight"][ids] * read[..., None]))
    x = x + weights["position.weight"][positions(read)]
    x = x + weights["segment.weight"][torch.zeros_like(ids) if segments is None else segments]
    return normalise(weights, "norm", x)


def trigrams(x: Tensor) -> Tensor:
    """[B, T, e] → [B, T, 3e]: the NEXT token, this one, the PREVIOUS one, zeros outside the row."""
    following = F.pad(x[:, 1:], (0, 0, 0, 1))
    previous = F.pad(x[:, :-1], (0, 0, 1, 0))
    return torch.cat([following, x, previous], dim=-1)


def attention(
    block: Weights, x: Tensor, narrow: Tensor, keep: Tensor, n_heads: int, mixer_input: str, normalise: Norm
) -> Tensor:
    """Self-attention inside the block; ``mixer_input`` selects what query, key and value read."""
    match mixer_input:
        case "shared":
            query_key_input, value_input = normalise(block, "shared_norm", linear(block, "shared", x)), x
        case "wide":
            query_key_input, value_input = x, x
        case "narrow":
            query_key_input, value_input = narrow, narrow
        case _:
            raise ValueError(f"unknown mixer input {mixer_input!r}")
    query, key = (split(linear(block, f"mixer.{name}", query_key_input), n_heads) for name in ("query", "key"))
    value = split(linear(block, "mixer.value", value_input), n_heads)
    return attend(content_scores(query, key), value, keep[:, None, None])


def no_norm(weights: Weights, name: str, x: Tensor) -> Tensor:
    """Eq. 1: an element-wise scale and shift instead of LayerNorm."""
    return weights[f"{name}.weight"] * x + weights[f"{name}.bias"]
