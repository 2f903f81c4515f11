"""Composite attention (Chang et al., 2021) in one file. The state dict determines which terms the model has.

Deviation: by default, offsets beyond the radius get the outermost weight (Shaw's clamp, as released). In the paper's
equations 2 and 3 they get zero, which is ``outside="zero"``.
"""

import math

import torch
from torch import Tensor

from lightbert.papers.bert import Weights, attend, close, content_scores, embed, linear, split, under
from lightbert.papers.convbert import depthwise_convolution


def composite(
    weights: Weights,
    ids: Tensor,
    *,
    keep: Tensor | None = None,
    segments: Tensor | None = None,
    depth: int,
    n_heads: int,
    outside: str = "clamp",
    local: str = "none",
    activation: str = "gelu",
    eps: float = 1e-12,
) -> Tensor:
    """Return the states [B, T, D]. ``local`` "query" or "key" is the paper's version of ConvBERT (Table 7)."""
    keep = torch.ones_like(ids, dtype=torch.bool) if keep is None else keep
    x = embed(weights, ids, segments, keep, eps)
    for block in (under(weights, f"blocks.{i}") for i in range(depth)):
        mixer = under(block, "mixer")
        if local == "none":
            context = composite_attention(mixer, x, keep, n_heads, outside)
        else:
            context = local_attention(mixer, x, keep, n_heads, indexed_by=local)
        x = close(block, x, context, activation, eps)
    return x


def composite_attention(weights: Weights, x: Tensor, keep: Tensor, n_heads: int, outside: str) -> Tensor:
    """Self-attention with convolutional terms in its scores, plus a depthwise convolution of its values."""
    query, key, value = (project(weights, name, x, keep) for name in ("query", "key", "value"))
    scores = composite_scores(weights, split(query, n_heads), split(key, n_heads), outside)
    context = attend(scores, split(value, n_heads), keep[:, None, None])
    if "depthwise.weight" in weights:
        read = value * keep[..., None]
        context = context + depthwise_convolution(read, weights["depthwise.weight"], weights["depthwise.bias"])
    return context


def composite_scores(weights: Weights, query: Tensor, key: Tensor, outside: str) -> Tensor:
    """Eq. 6: content + dynamic convolutions (maps shared by all heads) + a fixed convolution per head."""
    scale = math.sqrt(query.shape[-1])
    scores = content_scores(query, key)
    if "fixed" in weights:
        fixed = weights["fixed"][:, None].expand(-1, query.shape[2], -1)  # [H, T, 2R+1]
        scores = scores + at_offsets(fixed, outside)
    if "query_dynamic" in weights:
        scores = scores + at_offsets(query @ weights["query_dynamic"] / scale, outside)
    if "key_dynamic" in weights:
        # A key scores the queries around it, hence the transpose.
        scores = scores + at_offsets(key @ weights["key_dynamic"] / scale, outside).transpose(-1, -2)
    return scores


def at_offsets(taps: Tensor, outside: str) -> Tensor:
    """Place each token's taps [..., T, 2R+1] in its row i of a map [..., T, T]: tap r goes to column i + r − R."""
    tokens, radius = taps.shape[-2], taps.shape[-1] // 2
    place = torch.arange(tokens, device=taps.device)
    offset = place - place[:, None]  # column minus row [T, T]
    index = (offset.clamp(-radius, radius) + radius).expand(*taps.shape[:-1], tokens)
    laid = taps.gather(-1, index)
    return laid if outside == "clamp" else laid * (offset.abs() <= radius)


def project(weights: Weights, name: str, x: Tensor, keep: Tensor) -> Tensor:
    """Project to queries, keys or values. A convolutional projection (§5) convolves for the first half of the heads."""
    if f"{name}.weight" in weights:
        return linear(weights, name, x)
    part = under(weights, name)
    near = depthwise_convolution(x * keep[..., None], part["convolution.weight"], part["convolution.bias"])
    return torch.cat([linear(part, "convolved", near), linear(part, "direct", x)], dim=-1)


def local_attention(weights: Weights, x: Tensor, keep: Tensor, n_heads: int, indexed_by: str) -> Tensor:
    """The paper's ConvBERT (§A.3): content heads, then heads that attend within a kernel, with softmax over positions.

    The score of query q and key k is tap k − q of the kernel generated at q; in the released code, at k.
    """
    query, key, value = (linear(weights, name, x) for name in ("query", "key", "value"))
    near = depthwise_convolution(x * keep[..., None], weights["depthwise.weight"], weights["depthwise.bias"])
    taps = split(linear(weights, "kernel", query * linear(weights, "pointwise", near)), n_heads // 2)  # [B, H/2, T, K]
    # Place a key's taps in its row in reverse, then transpose, so that tap k − q meets query q.
    local = at_offsets(taps, "zero") if indexed_by == "query" else at_offsets(taps.flip(-1), "zero").transpose(-1, -2)
    content = content_scores(split(query, n_heads // 2), split(key, n_heads // 2))
    window = at_offsets(torch.ones_like(taps), "zero").bool()
    allowed = torch.cat([torch.ones_like(window), window], dim=1) & keep[:, None, None]
    return attend(torch.cat([content, local], dim=1), split(value, n_heads), allowed)
