"""Attention on the output of one matmul: queries, keys, values and perhaps biases as one tensor."""

import torch
from torch import Tensor

from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.joined_attention.layout import Layout
from lightbert.ops.relative_attention import check_outside, fits, relative_attention


def joined_attention(
    streams: Tensor, texts: Tensor | None = None, *, layout: Layout, outside: str = "clamp", dropout: float = 0.0
) -> Tensor:
    """As :func:`lightbert.ops.relative_attention.relative_attention`, on streams [B, T, layout.width] -> [B, T, H·E].

    The gradient of streams is one tensor, too: for separate inputs, copies would join their gradients.
    """
    check_outside(outside)
    if not has_kernel(streams, layout):
        query, key, value, by_query, by_key = layout.heads(streams)
        biases = {"by_query": by_query, "by_key": by_key}
        heads = relative_attention(query, key, value, **biases, texts=texts, outside=outside, dropout=dropout)
        return heads.transpose(1, 2).flatten(2)
    from lightbert.ops.joined_attention import operator

    seed = torch.randint(2**31, (1,), device=streams.device) if dropout > 0 else None
    out: Tensor = operator.joined_attention(as_autocast(streams), texts, seed, *layout, outside == "clamp", dropout)[0]
    return out


def has_kernel(x: Tensor, layout: Layout) -> bool:
    """Whether the kernels run on streams of this layout that are computed from x."""
    offsets = layout.offsets if layout.by_query or layout.by_key else None
    return use_triton("relative_attention", as_autocast(x), fits=fits(layout.each, offsets))
