"""The dynamic convolution's kernels as operators with autograd, torch.compile and fake tensor support."""

import torch

from lightbert.ops.dynamic_conv import triton


@torch.library.custom_op(
    "lightbert::dynamic_conv",
    mutates_args=(),
    schema="(Tensor values, Tensor logits, Tensor? texts, int taps) -> (Tensor, Tensor)",
)
def dynamic_conv(values, logits, texts, taps):
    """See :func:`lightbert.ops.dynamic_conv.dynamic_conv`; the logits must be padded to a multiple of `PADDING`.

    The second result is the softmax, which the backward pass reads.
    """
    return triton.forward(values, logits, texts, taps)


@torch.library.custom_op(
    "lightbert::dynamic_conv_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor values, Tensor kept, int taps, bool signed) -> (Tensor, Tensor)",
)
def _backward(grad, values, kept, taps, signed):
    return triton.backward(grad, values, kept, taps, signed=signed)


@dynamic_conv.register_fake
def _(values, logits, texts, taps):
    return values.new_empty(values.shape), logits.new_empty(logits.shape)


@_backward.register_fake
def _(grad, values, kept, taps, signed):
    return values.new_empty(values.shape), kept.new_empty(kept.shape)


def _keep(ctx, inputs, output):
    values, _, texts, ctx.taps = inputs
    ctx.signed = texts is not None
    ctx.save_for_backward(values, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradients(ctx, grad, _):
    return *_backward(grad, *ctx.saved_tensors, ctx.taps, ctx.signed), None, None


dynamic_conv.register_autograd(_gradients, setup_context=_keep)
