"""Mixed heads as an operator with autograd, torch.compile and fake tensor support.

Both kinds of heads write their part of one result, and of one gradient of the streams: as separate operators they would
be followed by copies that join what they return.
"""

import torch
from torch import Tensor

from lightbert.ops.dynamic_conv import triton as convolution
from lightbert.ops.mixed_heads import triton
from lightbert.ops.mixed_heads.forward.triton import convolve
from lightbert.ops.mixed_heads.product.triton import product_gradients
from lightbert.ops.relative_attention import calls
from lightbert.ops.relative_attention import launch as attention


def _attention(streams: Tensor, texts: Tensor | None, seed: Tensor | None, n_heads: int, dropout: float) -> calls.Call:
    query, key, value, _ = streams.chunk(4, dim=-1)
    return calls.prepare(query, key, value, None, None, texts, seed, n_heads, clamp=True, dropout=dropout)


@torch.library.custom_op(
    "lightbert::mixed_heads",
    mutates_args=(),
    schema="(Tensor streams, Tensor stream_bias, Tensor span_key, Tensor span_bias, Tensor weight, Tensor bias,"
    " Tensor? attention_texts, Tensor? convolution_texts, Tensor? seed, int n_heads, int taps, float dropout)"
    " -> (Tensor, Tensor, Tensor)",
)
def mixed_heads(
    streams,
    stream_bias,
    span_key,
    span_bias,
    weight,
    bias,
    attention_texts,
    convolution_texts,
    seed,
    n_heads,
    taps,
    dropout,
):
    """See :func:`lightbert.ops.mixed_heads.mixed_heads`; what follows the result is for the backward pass."""
    query, _, _, convolved = streams.chunk(4, dim=-1)
    out = streams.new_empty(*streams.shape[:2], streams.shape[2] // 2)
    into_attention, into_convolution = out.chunk(2, dim=-1)
    _, log_sums = attention.forward(_attention(streams, attention_texts, seed, n_heads, dropout), out=into_attention)
    layer = (query, span_key, span_bias, weight, bias)
    kept = convolve(*layer, convolved, convolution_texts, n_heads, taps, into_convolution)
    return out, log_sums, kept


@torch.library.custom_op(
    "lightbert::mixed_heads_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor out, Tensor log_sums, Tensor kept, Tensor streams, Tensor key, Tensor key_bias,"
    " Tensor weight, Tensor? attention_texts, Tensor? seed, int n_heads, int taps, float dropout, bool signed)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def _backward(
    grad, out, log_sums, kept, streams, key, key_bias, weight, attention_texts, seed, n_heads, taps, dropout, signed
):
    """The gradients of streams, span_key (``key``) and weight, and of bias, span_bias and the queries' bias in one."""
    query, _, _, convolved = streams.chunk(4, dim=-1)
    of_streams = streams.new_empty(streams.shape)
    *into_attention, into_convolution = of_streams.chunk(4, dim=-1)
    of_attended, of_convolved = grad.chunk(2, dim=-1)
    attention.backward(
        _attention(streams, attention_texts, seed, n_heads, dropout),
        of_attended,
        out.chunk(2, dim=-1)[0],
        log_sums,
        into=attention.Gradients(*into_attention),
    )
    _, of_logits = convolution.backward(of_convolved, convolved, kept, taps, signed=signed, into=into_convolution)
    span_gradients = triton.span_gradients if triton.is_narrow(weight) else product_gradients
    return of_streams, *span_gradients(of_logits.flatten(2), query, key, key_bias, weight, into_attention[0])


@mixed_heads.register_fake
def _(streams, stream_bias, span_key, span_bias, weight, bias, texts, more_texts, seed, n_heads, taps, dropout):
    batch, tokens, width = streams.shape
    return (
        streams.new_empty(batch, tokens, width // 2),
        streams.new_empty((batch, n_heads, tokens), dtype=torch.float32),
        streams.new_empty(batch, tokens, n_heads, len(weight) // n_heads),
    )


@_backward.register_fake
def _(grad, out, log_sums, kept, streams, key, key_bias, weight, attention_texts, seed, n_heads, taps, dropout, signed):
    gradients = (each.new_empty(each.shape) for each in (streams, key, weight))
    rows, width = weight.shape
    return *gradients, weight.new_empty(rows + 2 * width)


def _keep(ctx, inputs, output):
    streams, _, span_key, span_bias, weight, _, attention_texts, convolution_texts, seed, *ctx.settings = inputs
    ctx.settings.append(convolution_texts is not None)
    ctx.save_for_backward(*output, streams, span_key, span_bias, weight, attention_texts, seed)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _gradients(ctx, grad, *_):
    of_streams, of_span_key, of_weight, of_biases = _backward(grad, *ctx.saved_tensors, *ctx.settings)
    rows, width = of_weight.shape
    of_bias, of_span_bias, of_queries = of_biases.split([rows, width, width])
    # A bias of the keys has none: it adds the same number to all scores of a query.
    of_values = of_streams[..., 2 * width :].sum((0, 1))
    of_stream_bias = torch.cat([of_queries, torch.zeros_like(of_queries), of_values])
    return of_streams, of_stream_bias, of_span_key, of_span_bias, of_weight, of_bias, *[None] * 6


mixed_heads.register_autograd(_gradients, setup_context=_keep)
