"""The attention heads and the span-based convolution heads of ConvBERT as one op.

Both kinds of heads write their part of one result, and of one gradient of the streams: as separate operators they would
be followed by copies that join what they return.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops import kernels
from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.dynamic_conv import PADDING, dynamic_conv
from lightbert.ops.operators import dropout_seed, empty_like, operator
from lightbert.ops.relative_attention import relative_attention

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
    are taps. -> [B, T, 2·a], attention first. For texts see :mod:`lightbert.ops.documents`, for dropout of the
    attention weights :func:`lightbert.ops.relative_attention.relative_attention`.
    """
    if has_kernel(streams, n_heads, taps, len(weight) // n_heads):
        inputs = [as_autocast(x) for x in (streams, stream_bias, span_key, span_bias, weight, bias)]
        seed = dropout_seed(dropout, streams.device)
        return mixed_heads_operator(*inputs, attention_texts, convolution_texts, seed, n_heads, taps, dropout)[0]
    # Adds zero, and the gradient of the bias.
    streams = streams + (stream_bias - stream_bias.detach())
    query, key, value, convolved = streams.chunk(4, dim=-1)
    heads = [x.unflatten(-1, (n_heads, -1)).transpose(1, 2) for x in (query, key, value)]
    attended = relative_attention(*heads, texts=attention_texts, dropout=dropout).transpose(1, 2).flatten(2)
    logits = F.linear(query * (span_key + span_bias), weight, bias).unflatten(-1, (n_heads, -1))
    return torch.cat([attended, dynamic_conv(convolved, logits, convolution_texts, taps)], dim=-1)


def has_kernel(streams: Tensor, n_heads: int, taps: int, padded: int) -> bool:
    """Whether the kernels of both kinds of heads run on these streams."""
    fits = streams.shape[-1] // (4 * n_heads) <= 128 and taps <= 33 and taps % 2 == 1 and padded % PADDING == 0
    fits = fits and n_heads * padded <= _MOST_ROWS
    streams = as_autocast(streams)
    return all(use_triton(op, streams, fits=fits) for op in ("relative_attention", "dynamic_conv"))


def _attention(streams: Tensor, texts: Tensor | None, seed: Tensor | None, n_heads: int, dropout: float) -> Any:
    query, key, value, _ = streams.chunk(4, dim=-1)
    prepare = kernels.relative_attention.prepare
    return prepare(query, key, value, None, None, texts, seed, n_heads, clamp=True, dropout=dropout)


def _fake(streams: Tensor, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    (batch, tokens, width), weight, n_heads = streams.shape, inputs[3], inputs[8]
    return (
        streams.new_empty(batch, tokens, width // 2),
        streams.new_empty((batch, n_heads, tokens), dtype=torch.float32),
        streams.new_empty(batch, tokens, n_heads, len(weight) // n_heads),
    )


@operator(
    "mixed_heads(Tensor streams, Tensor stream_bias, Tensor span_key, Tensor span_bias, Tensor weight, Tensor bias,"
    " Tensor? attention_texts, Tensor? convolution_texts, Tensor? seed, int n_heads, int taps, float dropout)"
    " -> (Tensor, Tensor, Tensor)",
    fake=_fake,
)
def mixed_heads_operator(streams: Tensor, stream_bias: Tensor, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """See `mixed_heads`; what follows the result is for the backward pass."""
    *layer, attention_texts, convolution_texts, seed, n_heads, taps, dropout = inputs
    query, _, _, convolved = streams.chunk(4, dim=-1)
    out = streams.new_empty(*streams.shape[:2], streams.shape[2] // 2)
    into_attention, into_convolution = out.chunk(2, dim=-1)
    call = _attention(streams, attention_texts, seed, n_heads, dropout)
    _, log_sums = kernels.relative_attention.forward(call, out=into_attention)
    kept = kernels.mixed_heads.convolve(query, *layer, convolved, convolution_texts, n_heads, taps, into_convolution)
    return out, log_sums, kept


def _fake_backward(
    grad: Tensor, out: Any, log_sums: Any, kept: Any, streams: Tensor, key: Tensor, bias: Any, weight: Tensor, *_: Any
) -> tuple[Tensor, ...]:
    rows, width = weight.shape
    return *empty_like(streams, key, weight), weight.new_empty(rows + 2 * width)


@operator(
    "mixed_heads_backward(Tensor grad, Tensor out, Tensor log_sums, Tensor kept, Tensor streams, Tensor key,"
    " Tensor key_bias, Tensor weight, Tensor? attention_texts, Tensor? seed, int n_heads, int taps, float dropout,"
    " bool signed) -> (Tensor, Tensor, Tensor, Tensor)",
    fake=_fake_backward,
)
def _backward(grad: Tensor, out: Tensor, log_sums: Tensor, kept: Tensor, streams: Tensor, *inputs: Any) -> Any:
    """The gradients of streams, span_key (``key``) and weight, and of bias, span_bias and the queries' bias in one."""
    key, key_bias, weight, attention_texts, seed, n_heads, taps, dropout, signed = inputs
    query, _, _, convolved = streams.chunk(4, dim=-1)
    of_streams = streams.new_empty(streams.shape)
    *into_attention, into_convolution = of_streams.chunk(4, dim=-1)
    of_attended, of_convolved = grad.chunk(2, dim=-1)
    kernels.relative_attention.backward(
        _attention(streams, attention_texts, seed, n_heads, dropout),
        of_attended,
        out.chunk(2, dim=-1)[0],
        log_sums,
        into=kernels.relative_attention.Gradients(*into_attention),
    )
    _, of_logits = kernels.dynamic_conv.backward(
        of_convolved, convolved, kept, taps, signed=signed, into=into_convolution
    )
    layer = (query, key, key_bias, weight, into_attention[0])
    return of_streams, *kernels.mixed_heads.layer_gradients(of_logits.flatten(2), *layer)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    streams, _, span_key, span_bias, weight, _, attention_texts, convolution_texts, seed, *ctx.settings = inputs
    ctx.settings.append(convolution_texts is not None)
    ctx.save_for_backward(*output, streams, span_key, span_bias, weight, attention_texts, seed)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad: Tensor, *_: Any) -> Any:
    of_streams, of_span_key, of_weight, of_biases = _backward(grad, *ctx.saved_tensors, *ctx.settings)
    rows, width = of_weight.shape
    of_bias, of_span_bias, of_queries = of_biases.split([rows, width, width])
    # A bias of the keys has none: it adds the same number to all scores of a query.
    of_values = of_streams[..., 2 * width :].sum((0, 1))
    of_stream_bias = torch.cat([of_queries, torch.zeros_like(of_queries), of_values])
    return of_streams, of_stream_bias, of_span_key, of_span_bias, of_weight, of_bias, *[None] * 6


mixed_heads_operator.register_autograd(_gradients, setup_context=_keep)
