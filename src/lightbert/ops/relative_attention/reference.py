"""Relative attention in plain PyTorch: the biases are the additive mask of scaled dot-product attention."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops.texts import visible_keys


def spread(weights: Tensor, tokens: int, outside: str) -> Tensor:
    """Spread weights [..., T or 1, 2R+1] over keys: row i gets weights[j - i + R] at key j -> [..., T, T]."""
    radius = weights.shape[-1] // 2
    place = torch.arange(tokens, device=weights.device)
    offset = place[None, :] - place[:, None]  # [T, T], j - i
    index = offset.clamp(-radius, radius) + radius
    shape = (*weights.shape[:-2], tokens, tokens)
    bias = weights.expand(*shape[:-1], -1).gather(-1, index.expand(shape))
    return bias if outside == "clamp" else bias.masked_fill(offset.abs() > radius, 0.0)


def distance_bias(by_query: Tensor | None, by_key: Tensor | None, tokens: int, outside: str) -> Tensor | None:
    """Sum both kinds of distance bias -> [B or 1, H, T, T], or None when there is neither."""
    bias = None if by_query is None else spread(by_query, tokens, outside)
    if by_key is not None:
        # Row j of by_key has the offsets i - j of key j; the transpose moves it to column j.
        column = spread(by_key, tokens, outside).transpose(-1, -2)
        bias = column if bias is None else bias + column
    return bias


def relative_scores(
    query: Tensor,
    key: Tensor,
    by_query: Tensor | None,
    by_key: Tensor | None,
    texts: Tensor | None,
    outside: str = "clamp",
) -> Tensor:
    """Return the scores before the softmax, in fp32 and with masked keys at -inf, for a Record."""
    # Autocast would round each score to bfloat16, which the fused path doesn't.
    with torch.autocast(query.device.type, enabled=False):
        scores: Tensor = (query.float() @ key.float().transpose(-1, -2)) * query.shape[-1] ** -0.5
    bias = distance_bias(by_query, by_key, query.shape[-2], outside)
    if bias is not None:
        scores = scores + bias
    return scores if texts is None else scores.masked_fill(~visible_keys(texts), float("-inf"))


def relative_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    by_query: Tensor | None,
    by_key: Tensor | None,
    texts: Tensor | None,
    outside: str,
    dropout: float,
) -> Tensor:
    """See :func:`lightbert.ops.relative_attention.relative_attention`."""
    visible = None if texts is None else visible_keys(texts)
    bias = distance_bias(by_query, by_key, query.shape[-2], outside)
    if bias is not None:
        bias = bias.to(query.dtype)
        bias = bias if visible is None else bias.masked_fill(~visible, float("-inf"))
    mask = visible if bias is None else bias
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
