"""The kernels of bias and GELU as operators with autograd, torch.compile and fake tensor support."""

import torch

from lightbert.ops.bias_gelu import triton


@torch.library.custom_op("lightbert::bias_gelu", mutates_args=(), schema="(Tensor x, Tensor bias) -> Tensor")
def bias_gelu(x, bias):
    """See :func:`lightbert.ops.bias_gelu.bias_gelu`."""
    return triton.forward(x, bias)


@torch.library.custom_op(
    "lightbert::bias_gelu_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor x, Tensor bias) -> (Tensor, Tensor)",
)
def _backward(grad, x, bias):
    return triton.backward(grad, x, bias)


@bias_gelu.register_fake
def _(x, bias):
    return x.new_empty(x.shape)


@_backward.register_fake
def _(grad, x, bias):
    return x.new_empty(x.shape), bias.new_empty(bias.shape)


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _gradients(ctx, grad):
    return _backward(grad, *ctx.saved_tensors)


bias_gelu.register_autograd(_gradients, setup_context=_keep)
