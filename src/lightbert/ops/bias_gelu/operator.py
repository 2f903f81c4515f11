"""The kernels of bias and GELU as operators with autograd, torch.compile and fake tensor support."""

import torch
import torch.nn.functional as F

from lightbert.ops.bias_gelu import triton
from lightbert.ops.bias_gelu.score import triton as score


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


@torch.library.custom_op(
    "lightbert::gelu_linear", mutates_args=(), schema="(Tensor x, Tensor bias, Tensor weight) -> Tensor"
)
def gelu_linear(x, bias, weight):
    """See :func:`lightbert.ops.bias_gelu.gelu_linear`."""
    return F.linear(triton.forward(x, bias), weight)


@torch.library.custom_op(
    "lightbert::bias_gelu_again",
    mutates_args=(),
    schema="(Tensor grad, Tensor x, Tensor bias) -> (Tensor, Tensor, Tensor)",
)
def _again(grad, x, bias):
    """The gradients of x and of the bias, and the activations."""
    activated = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return *triton.backward(grad, x, bias, activated), activated


@gelu_linear.register_fake
def _(x, bias, weight):
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


@_again.register_fake
def _(grad, x, bias):
    return x.new_empty(x.shape), bias.new_empty(bias.shape), x.new_empty(x.shape)


def _gradients_of_linear(ctx, grad):
    x, bias, weight = ctx.saved_tensors
    of_x, of_bias, activated = _again(grad @ weight, x, bias)
    return of_x, of_bias, grad.flatten(0, -2).T @ activated.flatten(0, -2)


gelu_linear.register_autograd(_gradients_of_linear, setup_context=_keep)


@torch.library.custom_op(
    "lightbert::gelu_score", mutates_args=(), schema="(Tensor x, Tensor bias, Tensor weight) -> Tensor"
)
def gelu_score(x, bias, weight):
    """See :func:`lightbert.ops.bias_gelu.gelu_score`."""
    return score.forward(x, bias, weight)


@torch.library.custom_op(
    "lightbert::gelu_score_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor x, Tensor bias, Tensor weight) -> (Tensor, Tensor, Tensor)",
)
def _score_backward(grad, x, bias, weight):
    return score.backward(grad, x, bias, weight)


@gelu_score.register_fake
def _(x, bias, weight):
    return x.new_empty(x.shape[:-1], dtype=torch.float32)


@_score_backward.register_fake
def _(grad, x, bias, weight):
    return tuple(each.new_empty(each.shape) for each in (x, bias, weight))


def _gradients_of_score(ctx, grad):
    return _score_backward(grad, *ctx.saved_tensors)


gelu_score.register_autograd(_gradients_of_score, setup_context=_keep)
