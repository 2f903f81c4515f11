"""The kernels of a linear layer's cross-entropy as operators with autograd, torch.compile and fake tensor support."""

import torch

from lightbert.ops.linear_cross_entropy import triton
from lightbert.ops.linear_cross_entropy.gradients import triton as gradients


@torch.library.custom_op(
    "lightbert::linear_cross_entropy",
    mutates_args=(),
    schema=(
        "(Tensor features, Tensor table, Tensor bias, Tensor targets, Tensor? chances) "
        "-> (Tensor, Tensor, Tensor, Tensor)"
    ),
)
def linear_cross_entropy(features, table, bias, targets, chances):
    """See :func:`lightbert.ops.linear_cross_entropy.linear_cross_entropy`; the fourth result is what gradients need."""
    return triton.forward(features, table, bias, targets, chances)


@torch.library.custom_op(
    "lightbert::linear_cross_entropy_backward",
    mutates_args=(),
    schema=(
        "(Tensor grad, Tensor features, Tensor table, Tensor bias, Tensor targets, Tensor log_sums) "
        "-> (Tensor, Tensor, Tensor)"
    ),
)
def _backward(grad, features, table, bias, targets, log_sums):
    return gradients.backward(grad, features, table, bias, targets, log_sums)


@linear_cross_entropy.register_fake
def _(features, table, bias, targets, chances):
    loss = features.new_empty(targets.shape, dtype=torch.float32)
    drawn = targets.new_empty(targets.shape if chances is not None else (0,), dtype=torch.int64)
    return loss, targets.new_empty(targets.shape, dtype=torch.bool), drawn, torch.empty_like(loss)


@_backward.register_fake
def _(grad, features, table, bias, targets, log_sums):
    return tuple(each.new_empty(each.shape) for each in (features, table, bias))


def _keep(ctx, inputs, output):
    features, table, bias, targets, _ = inputs
    _, *others = output
    ctx.save_for_backward(features, table, bias, targets, others[-1])
    ctx.mark_non_differentiable(*others)


def _gradients(ctx, grad, *of_others):
    return *_backward(grad, *ctx.saved_tensors), None, None


linear_cross_entropy.register_autograd(_gradients, setup_context=_keep)
