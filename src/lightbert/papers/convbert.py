"""ConvBERT (Jiang et al., 2020) in one file: mixed attention, grouped feed-forward.

Deviation: the convolution heads have a separate value projection, and one layer generates the kernels of all heads from
the full query, as in the released code. Equations 4 to 6 share V and use one map per head, which contradicts the
paper's parameter counts; the weights determine which of the two a model has.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.papers.bert import ACTIVATIONS, Weights, attend, content_scores, embed, layer_norm, linear, split, under


def convbert(
    weights: Weights,
    ids: Tensor,
    *,
    keep: Tensor | None = None,
    segments: Tensor | None = None,
    depth: int,
    n_heads: int,
    head_ratio: int = 2,
    convolution: str = "span",
    released_padding: bool = False,
    activation: str = "gelu",
    eps: float = 1e-12,
) -> Tensor:
    """Return the states [B, T, D]. ``n_heads`` is the unreduced number of heads."""
    keep = torch.ones_like(ids, dtype=torch.bool) if keep is None else keep
    read = torch.ones_like(keep) if released_padding else keep
    reduced = max(1, n_heads // head_ratio)
    x = embed(weights, ids, segments, read, eps)
    for block in (under(weights, f"blocks.{i}") for i in range(depth)):
        context = mixed_attention(under(block, "mixer"), x, keep, read, reduced, convolution)
        x = layer_norm(block, "norm", x + linear(block, "output", context), eps)
        x = layer_norm(block, "feedforward.norm", x + feedforward(under(block, "feedforward"), x, activation), eps)
    return x


def mixed_attention(weights: Weights, x: Tensor, keep: Tensor, read: Tensor, n_heads: int, convolution: str) -> Tensor:
    """Eq. 6: self-attention heads, then as many convolution heads, which share the query [B, T, 2a]."""
    query, key, value = (linear(weights, name, x) for name in ("query", "key", "value"))
    scores = content_scores(split(query, n_heads), split(key, n_heads))
    attended = attend(scores, split(value, n_heads), keep[:, None, None])
    if convolution == "none":
        return attended
    part = under(weights, "convolution")
    return torch.cat([attended, convolve(part, convolution, x, x, query, value, read, n_heads)], dim=-1)


def convolve(
    weights: Weights,
    convolution: str,
    x: Tensor,
    value_input: Tensor,
    query: Tensor,
    value: Tensor,
    read: Tensor,
    n_heads: int,
) -> Tensor:
    """The convolution heads, beside attention with these queries and values [B, T, a]."""
    if "value.weight" in weights:
        value = linear(weights, "value", value_input)
    match convolution:
        case "span":
            return span_convolution(weights, x, query, read, n_heads, value)
        case "dynamic":
            return dynamic_convolution(weights, x, query, read, n_heads, value)
        case "gated":
            # §3.1, Fig. 3b: kernels and values from a projection and a gated linear unit.
            gated = F.glu(linear(weights, "gate", x))
            return dynamic_convolution(weights, x, gated, read, n_heads, gated)
        case "conventional":
            return separable_convolution(weights, value_input, read)
    raise ValueError(f"unknown convolution {convolution!r}")


def span_convolution(
    weights: Weights, x: Tensor, query: Tensor, read: Tensor, n_heads: int, value: Tensor | None = None
) -> Tensor:
    """Eqs. 4 and 5: kernels from the query times the span-aware key."""
    span_key = separable_convolution(weights, x, read)
    return dynamic_convolution(weights, x, query * span_key, read, n_heads, value)


def dynamic_convolution(
    weights: Weights, x: Tensor, source: Tensor, read: Tensor, n_heads: int, value: Tensor | None = None
) -> Tensor:
    """Eq. 3: each token's kernels, a softmax over the taps of W·source, weight the values around it."""
    value = linear(weights, "value", x) if value is None else value
    layer = F.linear if weights["kernel.weight"].dim() == 2 else grouped_linear
    taps = split(layer(source, weights["kernel.weight"], weights["kernel.bias"]), n_heads).softmax(-1)  # [B, H, T, K]
    return light_convolution(split(value * read[..., None], n_heads), taps).transpose(1, 2).flatten(2)


def light_convolution(value: Tensor, taps: Tensor) -> Tensor:
    """Eq. 2: out[t] = Σ_j taps[t, j] · value[t + j − R], zeros outside the row; the channels of a head share a tap."""
    tokens, kernel = taps.shape[-2:]
    padded = F.pad(value, (0, 0, kernel // 2, kernel // 2))
    out = torch.zeros_like(value)
    for j in range(kernel):
        out = out + taps[..., j, None] * padded[..., j : j + tokens, :]
    return out


def separable_convolution(weights: Weights, x: Tensor, read: Tensor) -> Tensor:
    """A depthwise, then a pointwise convolution with one bias at the end; masked tokens read as zero."""
    return linear(weights, "pointwise", depthwise_convolution(x * read[..., None], weights["depthwise.weight"]))


def depthwise_convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """out[t, c] = Σ_j weight[c, j] · x[t + j − R, c] (+ bias[c]), zeros outside the row."""
    tokens, kernel = x.shape[1], weight.shape[-1]
    padded = F.pad(x, (0, 0, kernel // 2, kernel // 2))
    out = torch.zeros_like(x)
    for j in range(kernel):
        out = out + weight[:, j] * padded[:, j : j + tokens]
    return out if bias is None else out + bias


def feedforward(weights: Weights, x: Tensor, activation: str) -> Tensor:
    """Eq. 7: two grouped layers, or two dense ones where the weights are matrices."""
    layer = F.linear if weights["up.weight"].dim() == 2 else grouped_linear
    inner = ACTIVATIONS[activation](layer(x, weights["up.weight"], weights["up.bias"]))
    return layer(inner, weights["down.weight"], weights["down.bias"])


def grouped_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Block g of the output depends only on block g of the input. ``weight`` is [groups, in/groups, out/groups]."""
    blocks = x.chunk(len(weight), dim=-1)
    return torch.cat([block @ matrix for block, matrix in zip(blocks, weight, strict=True)], dim=-1) + bias
