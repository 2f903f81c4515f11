"""The kernels of residual connection and layer norm for autograd, torch.compile and fake tensors."""

import torch

from lightbert.ops.residual_norm import triton


@torch.library.custom_op(
    "lightbert::residual_norm",
    mutates_args=(),
    schema="(Tensor x, Tensor change, Tensor weight, Tensor bias, float eps) -> (Tensor, Tensor, Tensor)",
)
def residual_norm(x, change, weight, bias, eps):
    """See :func:`lightbert.ops.residual_norm.residual_norm`; the gradient needs the other results."""
    return triton.forward(x, change, weight, bias, eps)


@torch.library.custom_op(
    "lightbert::residual_norm_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor x, Tensor change, Tensor weight, Tensor mean, Tensor scale) -> (Tensor, Tensor)",
)
def _backward(grad, x, change, weight, mean, scale):
    return triton.backward(grad, x, change, weight, mean, scale)


@residual_norm.register_fake
def _(x, change, weight, bias, eps):
    statistics = [x.new_empty(x.shape[:-1], dtype=torch.float32) for _ in range(2)]
    return change.new_empty(change.shape), *statistics


@_backward.register_fake
def _(grad, x, change, weight, mean, scale):
    of_sum = x.new_empty(x.shape, dtype=torch.promote_types(x.dtype, change.dtype))
    return of_sum, weight.new_empty((2, *weight.shape))


def _keep(ctx, inputs, output):
    x, change, weight, _, _ = inputs
    _, *statistics = output
    ctx.save_for_backward(x, change, weight, *statistics)
    ctx.mark_non_differentiable(*statistics)


def _gradients(ctx, grad, of_mean, of_scale):
    x, change, *_ = ctx.saved_tensors
    of_sum, of_parameters = _backward(grad, *ctx.saved_tensors)
    of_weight, of_bias = of_parameters.unbind()
    return of_sum.to(x.dtype), of_sum.to(change.dtype), of_weight, of_bias, None


residual_norm.register_autograd(_gradients, setup_context=_keep)
