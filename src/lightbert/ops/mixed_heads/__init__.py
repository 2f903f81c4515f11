"""The attention heads and the span-based convolution heads of ConvBERT as one op."""

import torch
from torch import Tensor

from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.dynamic_conv import PADDING
from lightbert.ops.mixed_heads import reference

_MOST_ROWS = 256
"""Outputs of the kernel layer: a program has all of them."""


def mixed_heads(
    streams: Tensor,
    stream_bias: Tensor,
    span_key: Tensor,
    span_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    attention_texts: Tensor | None = None,
    convolution_texts: Tensor | None = None,
    *,
    n_heads: int,
    taps: int,
    dropout: float = 0.0,
) -> Tensor:
    """Attend with H heads and convolve with as many (ConvBERT §3.3), both from one tensor and into one tensor.

    streams [B, T, 4·a] are the queries, keys and values of attention and the values of the convolution, a = H·E. They
    already contain stream_bias [4·a], added without a gradient: this op returns the gradient of that bias.
    span_key [B, T, a] + span_bias [a] are the span-aware keys. The logits of the convolution's kernels are a linear
    layer of queries · keys with ``weight`` [H·P, a] and ``bias`` [H·P]: P >= taps outputs per head, of which the first
    are taps. -> [B, T, 2·a], attention first. For texts see :mod:`lightbert.ops.texts`, for dropout of the attention
    weights :func:`lightbert.ops.relative_attention.relative_attention`.
    """
    given = (streams, stream_bias, span_key, span_bias, weight, bias)
    texts = (attention_texts, convolution_texts)
    if not has_kernel(streams, n_heads, taps, len(weight) // n_heads):
        return reference.mixed_heads(*given, *texts, n_heads, taps, dropout)
    from lightbert.ops.mixed_heads import operator

    seed = torch.randint(2**31, (1,), device=streams.device) if dropout > 0 else None
    out: Tensor = operator.mixed_heads(*(as_autocast(x) for x in given), *texts, seed, n_heads, taps, dropout)[0]
    return out


def has_kernel(streams: Tensor, n_heads: int, taps: int, padded: int) -> bool:
    """Whether the kernels of both kinds of heads run on these streams."""
    fits = streams.shape[-1] // (4 * n_heads) <= 128 and taps <= 33 and padded % PADDING == 0
    fits = fits and n_heads * padded <= _MOST_ROWS
    streams = as_autocast(streams)
    return all(use_triton(op, streams, fits=fits) for op in ("relative_attention", "dynamic_conv"))
