"""The relative attention kernels as operators with autograd, torch.compile and fake tensor support."""

import torch

from lightbert.ops.relative_attention import launch
from lightbert.ops.relative_attention.calls import prepare

_INPUTS = (
    "Tensor query, Tensor key, Tensor value, Tensor? by_query, Tensor? by_key, Tensor? texts, Tensor? seed,"
    " int n_heads, bool clamp, float dropout"
)


@torch.library.custom_op("lightbert::relative_attention", mutates_args=(), schema=f"({_INPUTS}) -> (Tensor, Tensor)")
def relative_attention(*inputs):
    """Attention on token-major streams [B, T, H·E] with biases [B, H, T, 2R+1], and the sums of its softmax.

    ``seed`` is one integer, from which the weights that dropout removes are computed.
    """
    return launch.forward(prepare(*inputs))


@torch.library.custom_op(
    "lightbert::relative_attention_backward",
    mutates_args=(),
    schema=f"(Tensor grad, Tensor out, Tensor log_sums, {_INPUTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _backward(grad, out, log_sums, *inputs):
    found = launch.backward(prepare(*inputs), grad, out, log_sums)
    # An operator returns tensors only.
    biases = (grad.new_empty(0) if bias is None else bias for bias in (found.by_query, found.by_key))
    return found.query, found.key, found.value, *biases


@relative_attention.register_fake
def _(query, key, value, by_query, by_key, texts, seed, n_heads, clamp, dropout):
    batch, tokens, _ = query.shape
    return query.new_empty(query.shape), query.new_empty((batch, n_heads, tokens), dtype=torch.float32)


@_backward.register_fake
def _(grad, out, log_sums, query, key, value, by_query, by_key, texts, seed, n_heads, clamp, dropout):
    return tuple(
        grad.new_empty(0) if x is None else x.new_empty(x.shape) for x in (query, key, value, by_query, by_key)
    )


def _keep(ctx, inputs, output):
    tensors, ctx.settings = inputs[:7], inputs[7:]
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx, grad, _):
    *tensors, out, log_sums = ctx.saved_tensors
    query, key, value, by_query, by_key = _backward(grad, out, log_sums, *tensors, *ctx.settings)
    given_by_query, given_by_key = tensors[3:5]
    biases = (None if given_by_query is None else by_query, None if given_by_key is None else by_key)
    return query, key, value, *biases, None, None, None, None, None


relative_attention.register_autograd(_gradients, setup_context=_keep)
