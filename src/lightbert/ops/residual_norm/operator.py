"""The kernels of residual connection and layer norm for autograd, torch.compile and fake tensors."""

import torch

from lightbert.ops.residual_norm import triton


@torch.library.custom_op(
    "lightbert::residual_norm",
    mutates_args=(),
    schema=(
        "(Tensor x, Tensor change, Tensor weight, Tensor bias, float eps, Tensor? seed=None, float dropout=0.0,"
        " Tensor? change_bias=None) -> (Tensor, Tensor, Tensor)"
    ),
)
def residual_norm(x, change, weight, bias, eps, seed=None, dropout=0.0, change_bias=None):
    """See :func:`lightbert.ops.residual_norm.residual_norm`; the gradient needs the other results.

    ``seed`` is one integer, from which the elements that dropout removes are computed; None for no dropout.
    """
    return triton.forward(x, change, weight, bias, eps, seed, dropout, change_bias)


@torch.library.custom_op(
    "lightbert::residual_norm_backward",
    mutates_args=(),
    schema=(
        "(Tensor grad, Tensor x, Tensor change, Tensor weight, Tensor mean, Tensor scale, Tensor? seed,"
        " Tensor? change_bias, float dropout, Tensor? more_grad=None) -> (Tensor, Tensor, Tensor, Tensor)"
    ),
)
def _backward(grad, x, change, weight, mean, scale, seed, change_bias, dropout, more_grad=None):
    found = triton.backward(grad, x, change, weight, mean, scale, seed, dropout, change_bias, more_grad)
    # An operator returns tensors only.
    return tuple(change.new_empty(0) if gradient is None else gradient for gradient in found)


@residual_norm.register_fake
def _(x, change, weight, bias, eps, seed=None, dropout=0.0, change_bias=None):
    statistics = [x.new_empty(x.shape[:-1], dtype=torch.float32) for _ in range(2)]
    return change.new_empty(change.shape), *statistics


@_backward.register_fake
def _(grad, x, change, weight, mean, scale, seed, change_bias, dropout, more_grad=None):
    dtype = torch.promote_types(x.dtype, change.dtype) if seed is None else x.dtype
    return (
        x.new_empty(x.shape, dtype=dtype),
        change.new_empty(0 if seed is None else change.shape),
        weight.new_empty((2, *weight.shape)),
        change.new_empty(0) if change_bias is None else change_bias.new_empty(change_bias.shape),
    )


def _keep(ctx, inputs, output):
    x, change, weight, _, _, seed, ctx.dropout, change_bias = inputs
    _, *statistics = output
    ctx.save_for_backward(x, change, weight, *statistics, seed, change_bias)
    ctx.mark_non_differentiable(*statistics)


def _gradients(ctx, grad, of_mean, of_scale):
    x, change, *_, seed, change_bias = ctx.saved_tensors
    of_x, of_change, of_parameters, of_change_bias = _backward(grad, *ctx.saved_tensors, ctx.dropout)
    if seed is None:
        of_x, of_change = of_x.to(x.dtype), of_x.to(change.dtype)
    return of_x, of_change, *of_parameters.unbind(), None, None, None, None if change_bias is None else of_change_bias


residual_norm.register_autograd(_gradients, setup_context=_keep)
