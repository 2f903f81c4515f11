"""The dynamic convolution's kernels as operators with autograd, torch.compile and fake tensor support."""

import torch

from lightbert.ops.dynamic_conv import triton


@torch.library.custom_op(
    "lightbert::dynamic_conv",
    mutates_args=(),
    schema="(Tensor values, Tensor logits, Tensor? texts, int taps) -> Tensor",
)
def dynamic_conv(values, logits, texts, taps):
    """See :func:`lightbert.ops.dynamic_conv.dynamic_conv`; the logits must be padded to a multiple of `PADDING`."""
    return triton.forward(values, logits, texts, taps)


@torch.library.custom_op(
    "lightbert::dynamic_conv_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor values, Tensor logits, Tensor? texts, int taps) -> (Tensor, Tensor)",
)
def _backward(grad, values, logits, texts, taps):
    return triton.backward(grad, values, logits, texts, taps)


@dynamic_conv.register_fake
def _(values, logits, texts, taps):
    return values.new_empty(values.shape)


@_backward.register_fake
def _(grad, values, logits, texts, taps):
    return values.new_empty(values.shape), logits.new_empty(logits.shape)


def _keep(ctx, inputs, output):
    values, logits, texts, ctx.taps = inputs
    ctx.save_for_backward(values, logits, texts)


def _gradients(ctx, grad):
    return *_backward(grad, *ctx.saved_tensors, ctx.taps), None, None


dynamic_conv.register_autograd(_gradients, setup_context=_keep)
