"""The depthwise kernels as operators with autograd, torch.compile and fake tensor support."""

import torch

from lightbert.ops.depthwise import triton


@torch.library.custom_op(
    "lightbert::depthwise",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, Tensor? texts) -> (Tensor, Tensor)",
)
def depthwise(x, weight, bias, texts):
    """See :func:`lightbert.ops.depthwise.depthwise`; also the weight as the backward pass reads it."""
    taps_first = triton.put_taps_first(weight)
    return triton.forward(x, taps_first, bias, texts), taps_first


@torch.library.custom_op(
    "lightbert::depthwise_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor x, Tensor taps_first, Tensor? texts, Tensor? more=None, Tensor? and_more=None)"
    " -> (Tensor, Tensor, Tensor)",
)
def _backward(grad, x, taps_first, texts, more=None, and_more=None):
    """The gradients of x, weight and bias; ``more`` and ``and_more`` are added to the first one."""
    return triton.backward(grad, x, taps_first, texts, more, and_more)


@depthwise.register_fake
def _(x, weight, bias, texts):
    return x.new_empty(x.shape), weight.new_empty(weight.shape[::-1])


@_backward.register_fake
def _(grad, x, taps_first, texts, more=None, and_more=None):
    of_weight = taps_first.new_empty(taps_first.shape[::-1])
    return x.new_empty(x.shape), of_weight, of_weight.new_empty(len(of_weight), dtype=torch.float32)


def _keep(ctx, inputs, output):
    x, _, bias, texts = inputs
    ctx.save_for_backward(x, output[1], texts)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.bias_type = None if bias is None else bias.dtype


def _gradients(ctx, grad, _):
    of_x, of_weight, of_bias = _backward(grad, *ctx.saved_tensors)
    return of_x, of_weight, None if ctx.bias_type is None else of_bias.to(ctx.bias_type), None


depthwise.register_autograd(_gradients, setup_context=_keep)
