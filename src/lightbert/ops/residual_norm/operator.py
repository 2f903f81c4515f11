"""The kernels of residual connection and layer norm for autograd, torch.compile and fake tensors."""

import torch

from lightbert.ops.residual_norm import triton


@torch.library.custom_op(
    "lightbert::residual_norm",
    mutates_args=(),
    schema=(
        "(Tensor x, Tensor change, Tensor weight, Tensor bias, float eps, Tensor? seed=None, float dropout=0.0)"
        " -> (Tensor, Tensor, Tensor)"
    ),
)
def residual_norm(x, change, weight, bias, eps, seed=None, dropout=0.0):
    """See :func:`lightbert.ops.residual_norm.residual_norm`; the gradient needs the other results.

    ``seed`` is one integer, from which the elements that dropout removes are computed; None for no dropout.
    """
    return triton.forward(x, change, weight, bias, eps, seed, dropout)


@torch.library.custom_op(
    "lightbert::residual_norm_backward",
    mutates_args=(),
    schema=(
        "(Tensor grad, Tensor x, Tensor change, Tensor weight, Tensor mean, Tensor scale, Tensor? seed, float dropout)"
        " -> (Tensor, Tensor, Tensor)"
    ),
)
def _backward(grad, x, change, weight, mean, scale, seed, dropout):
    of_x, of_change, of_parameters = triton.backward(grad, x, change, weight, mean, scale, seed, dropout)
    # An operator returns tensors only.
    return of_x, change.new_empty(0) if of_change is None else of_change, of_parameters


@residual_norm.register_fake
def _(x, change, weight, bias, eps, seed=None, dropout=0.0):
    statistics = [x.new_empty(x.shape[:-1], dtype=torch.float32) for _ in range(2)]
    return change.new_empty(change.shape), *statistics


@_backward.register_fake
def _(grad, x, change, weight, mean, scale, seed, dropout):
    of_parameters = weight.new_empty((2, *weight.shape))
    if seed is None:
        dtype = torch.promote_types(x.dtype, change.dtype)
        return x.new_empty(x.shape, dtype=dtype), change.new_empty(0), of_parameters
    return x.new_empty(x.shape), change.new_empty(change.shape), of_parameters


def _keep(ctx, inputs, output):
    x, change, weight, _, _, seed, ctx.dropout = inputs
    _, *statistics = output
    ctx.save_for_backward(x, change, weight, *statistics, seed)
    ctx.mark_non_differentiable(*statistics)


def _gradients(ctx, grad, of_mean, of_scale):
    x, change, *_, seed = ctx.saved_tensors
    of_x, of_change, of_parameters = _backward(grad, *ctx.saved_tensors, ctx.dropout)
    if seed is None:
        of_x, of_change = of_x.to(x.dtype), of_x.to(change.dtype)
    return of_x, of_change, *of_parameters.unbind(), None, None, None


residual_norm.register_autograd(_gradients, setup_context=_keep)
