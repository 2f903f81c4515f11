"""Mixed heads as an operator with autograd, torch.compile and fake tensor support.

Both kinds of heads write their part of one result, and of one gradient of the streams: as separate operators they would
be followed by copies that join what they return.
"""

import torch
from torch import Tensor

from lightbert.ops.dynamic_conv import triton as convolution
from lightbert.ops.mixed_heads import triton
from lightbert.ops.mixed_heads.product import triton as product
from lightbert.ops.relative_attention import calls
from lightbert.ops.relative_attention import launch as attention


def _attention(streams: Tensor, texts: Tensor | None, seed: Tensor | None, n_heads: int, dropout: float) -> calls.Call:
    query, key, value, _ = streams.chunk(4, dim=-1)
    return calls.prepare(query, key, value, None, None, texts, seed, n_heads, clamp=True, dropout=dropout)


@torch.library.custom_op(
    "lightbert::mixed_heads",
    mutates_args=(),
    schema="(Tensor streams, Tensor span_key, Tensor weight, Tensor bias, Tensor? attention_texts,"
    " Tensor? convolution_texts, Tensor? seed, int n_heads, int taps, float dropout)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def mixed_heads(streams, span_key, weight, bias, attention_texts, convolution_texts, seed, n_heads, taps, dropout):
    """See :func:`lightbert.ops.mixed_heads.mixed_heads`; what follows the result is for the backward pass."""
    query, _, _, convolved = streams.chunk(4, dim=-1)
    out = streams.new_empty(*streams.shape[:2], streams.shape[2] // 2)
    into_attention, into_convolution = out.chunk(2, dim=-1)
    _, log_sums = attention.forward(_attention(streams, attention_texts, seed, n_heads, dropout), out=into_attention)
    if triton.fits(weight):
        span, logits = streams.new_empty(0), triton.span_logits(query, span_key, weight, bias)
    else:
        span = product.multiply(query, span_key)
        logits = torch.nn.functional.linear(span, weight, bias)
    logits = logits.unflatten(-1, (n_heads, -1))
    _, kept = convolution.forward(convolved, logits, convolution_texts, taps, out=into_convolution)
    return out, span, log_sums, kept


@torch.library.custom_op(
    "lightbert::mixed_heads_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor out, Tensor log_sums, Tensor kept, Tensor streams, Tensor span_key, Tensor weight,"
    " Tensor? attention_texts, Tensor? seed, int n_heads, int taps, float dropout, bool signed)"
    " -> (Tensor, Tensor, Tensor)",
)
def _backward(
    grad, out, log_sums, kept, streams, span_key, weight, attention_texts, seed, n_heads, taps, dropout, signed
):
    """The gradients of streams and of span_key, and those of weight and bias in one tensor.

    For wide heads the last ones are those of the logits, from which torch.compile computes the others.
    """
    query, _, _, convolved = streams.chunk(4, dim=-1)
    of_streams = streams.new_empty(streams.shape)
    *into_attention, into_convolution = of_streams.chunk(4, dim=-1)
    of_attended, of_convolved = grad.chunk(2, dim=-1)
    _, of_logits = convolution.backward(of_convolved, convolved, kept, taps, signed=signed, into=into_convolution)
    attention.backward(
        _attention(streams, attention_texts, seed, n_heads, dropout),
        of_attended,
        out.chunk(2, dim=-1)[0],
        log_sums,
        into=attention.Gradients(*into_attention),
    )
    of_logits = of_logits.flatten(2)
    if triton.fits(weight):
        return of_streams, *triton.span_gradients(of_logits, query, span_key, weight, into_attention[0])
    of_span = of_logits @ weight
    return of_streams, product.add_product_gradients(of_span, query, span_key, into_attention[0]), of_logits


@mixed_heads.register_fake
def _(streams, span_key, weight, bias, attention_texts, convolution_texts, seed, n_heads, taps, dropout):
    batch, tokens, width = streams.shape
    return (
        streams.new_empty(batch, tokens, width // 2),
        streams.new_empty(0) if triton.fits(weight) else streams.new_empty(batch, tokens, width // 4),
        streams.new_empty((batch, n_heads, tokens), dtype=torch.float32),
        streams.new_empty(batch, tokens, n_heads, len(weight) // n_heads),
    )


@_backward.register_fake
def _(grad, out, log_sums, kept, streams, span_key, weight, attention_texts, seed, n_heads, taps, dropout, signed):
    shape = [weight.numel() + len(weight)] if triton.fits(weight) else [*streams.shape[:2], len(weight)]
    return streams.new_empty(streams.shape), span_key.new_empty(span_key.shape), weight.new_empty(shape)


def _keep(ctx, inputs, output):
    streams, span_key, weight, _, attention_texts, convolution_texts, seed, *ctx.settings = inputs
    ctx.settings.append(convolution_texts is not None)
    out, *kept = output
    ctx.save_for_backward(kept[0], out, *kept[1:], streams, span_key, weight, attention_texts, seed)
    ctx.mark_non_differentiable(*kept)
    ctx.set_materialize_grads(False)


def _gradients(ctx, grad, *_):
    span, *kept = ctx.saved_tensors
    of_streams, of_span_key, last = _backward(grad, *kept, *ctx.settings)
    weight = kept[5]
    if triton.fits(weight):
        of_weight, of_bias = last.split([weight.numel(), len(weight)])
        of_weight = of_weight.view_as(weight)
    else:
        of_logits = last.flatten(0, 1)
        of_weight, of_bias = of_logits.t() @ span.flatten(0, 1), of_logits.sum(0)
    return of_streams, of_span_key, of_weight, of_bias, *[None] * 6


mixed_heads.register_autograd(_gradients, setup_context=_keep)
