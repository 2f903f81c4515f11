"""Joined attention as an operator with autograd, torch.compile and fake tensor support."""

import torch

from lightbert.ops.joined_attention.layout import Layout
from lightbert.ops.relative_attention import launch
from lightbert.ops.relative_attention.calls import Call, prepare

_LAYOUT = "int n_heads, int each, int offsets, bool by_query, bool by_key"


def _call(layout: Layout, streams, biases, texts, seed, clamp, dropout) -> Call:
    query, key, value, *_ = streams.split(layout.widths, dim=-1)
    by_query, by_key = biases
    return prepare(query, key, value, by_query, by_key, texts, seed, layout.n_heads, clamp, dropout)


@torch.library.custom_op(
    "lightbert::joined_attention",
    mutates_args=(),
    schema=f"(Tensor streams, Tensor? texts, Tensor? seed, {_LAYOUT}, bool clamp, float dropout)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def joined_attention(streams, texts, seed, n_heads, each, offsets, by_query, by_key, clamp, dropout):
    """The result, the sums of the softmax, and copies of both biases in the layout of the kernels."""
    layout = Layout(n_heads, each, offsets, by_query, by_key)
    *_, of_query, of_key = layout.heads(streams)
    # Always copies: an operator must not return views of its inputs, and those of a single token are contiguous.
    contiguous = torch.contiguous_format
    copies = [None if bias is None else bias.clone(memory_format=contiguous) for bias in (of_query, of_key)]
    out, log_sums = launch.forward(_call(layout, streams, copies, texts, seed, clamp, dropout))
    return out, log_sums, *(streams.new_empty(0) if copy is None else copy for copy in copies)


@torch.library.custom_op(
    "lightbert::joined_attention_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor out, Tensor log_sums, Tensor by_query_copy, Tensor by_key_copy, Tensor streams,"
    f" Tensor? texts, Tensor? seed, {_LAYOUT}, bool clamp, float dropout) -> Tensor",
)
def _backward(
    grad,
    out,
    log_sums,
    by_query_copy,
    by_key_copy,
    streams,
    texts,
    seed,
    n_heads,
    each,
    offsets,
    by_query,
    by_key,
    clamp,
    dropout,
):
    layout = Layout(n_heads, each, offsets, by_query, by_key)
    found = streams.new_empty(streams.shape)
    for unused in layout.unused(found):
        unused.zero_()
    of_query, of_key, of_value, *_ = found.split(layout.widths, dim=-1)
    *_, of_by_query, of_by_key = layout.heads(found)
    # An operator gets and returns empty tensors instead of None.
    biases = (by_query_copy if by_query else None, by_key_copy if by_key else None)
    call = _call(layout, streams, biases, texts, seed, clamp, dropout)
    into = launch.Gradients(of_query, of_key, of_value, of_by_query, of_by_key)
    launch.backward(call, grad, out, log_sums, into=into)
    return found


@joined_attention.register_fake
def _(streams, texts, seed, n_heads, each, offsets, by_query, by_key, clamp, dropout):
    batch, tokens, _ = streams.shape
    copy = (batch, n_heads, tokens, offsets)
    return (
        streams.new_empty(batch, tokens, n_heads * each),
        streams.new_empty((batch, n_heads, tokens), dtype=torch.float32),
        *(streams.new_empty(copy if given else 0) for given in (by_query, by_key)),
    )


@_backward.register_fake
def _(grad, out, log_sums, by_query_copy, by_key_copy, streams, *_):
    return streams.new_empty(streams.shape)


def _keep(ctx, inputs, output):
    streams, texts, seed, *ctx.settings = inputs
    ctx.save_for_backward(*output, streams, texts, seed)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _gradients(ctx, grad, *_):
    return _backward(grad, *ctx.saved_tensors, *ctx.settings), *[None] * 9


joined_attention.register_autograd(_gradients, setup_context=_keep)
