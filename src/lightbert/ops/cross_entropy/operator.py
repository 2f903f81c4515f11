"""The cross-entropy kernels as operators with autograd, torch.compile and fake tensor support."""

import torch

from lightbert.ops.cross_entropy import triton


@torch.library.custom_op(
    "lightbert::cross_entropy", mutates_args=(), schema="(Tensor logits, Tensor targets) -> (Tensor, Tensor, Tensor)"
)
def cross_entropy(logits, targets):
    """See :func:`lightbert.ops.cross_entropy.cross_entropy`; the third result is what the gradient needs."""
    return triton.forward(logits, targets)


@torch.library.custom_op(
    "lightbert::cross_entropy_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor logits, Tensor targets, Tensor normaliser) -> Tensor",
)
def _backward(grad, logits, targets, normaliser):
    return triton.backward(grad, logits, targets, normaliser)


@cross_entropy.register_fake
def _(logits, targets):
    loss = logits.new_empty(targets.shape, dtype=torch.float32)
    return loss, logits.new_empty(targets.shape, dtype=torch.int64), torch.empty_like(loss)


@_backward.register_fake
def _(grad, logits, targets, normaliser):
    return logits.new_empty(logits.shape)


def _keep(ctx, inputs, output):
    _, best, normaliser = output
    ctx.save_for_backward(*inputs, normaliser)
    ctx.mark_non_differentiable(best, normaliser)


def _gradients(ctx, grad, of_best, of_normaliser):
    return _backward(grad, *ctx.saved_tensors), None


cross_entropy.register_autograd(_gradients, setup_context=_keep)
