"""The kernels of the narrow feed-forward for autograd, torch.compile and fake tensors."""

import torch

from lightbert.ops.relu_feedforward import triton


@torch.library.custom_op(
    "lightbert::relu_feedforward",
    mutates_args=(),
    schema=(
        "(Tensor x, Tensor up, Tensor up_bias, Tensor down, Tensor down_bias, Tensor scale, Tensor shift)"
        " -> (Tensor, Tensor)"
    ),
)
def relu_feedforward(x, up, up_bias, down, down_bias, scale, shift):
    """See :func:`lightbert.ops.relu_feedforward.relu_feedforward`; the second result is the first before its scale."""
    return triton.forward(x, up, up_bias, down, down_bias, scale, shift)


@torch.library.custom_op(
    "lightbert::relu_feedforward_backward",
    mutates_args=(),
    schema=(
        "(Tensor grad, Tensor x, Tensor unscaled, Tensor up, Tensor up_bias, Tensor scaled_down, Tensor scale)"
        " -> (Tensor, Tensor, Tensor, Tensor)"
    ),
)
def _backward(grad, x, unscaled, up, up_bias, scaled_down, scale):
    return triton.backward(grad, x, unscaled, up, up_bias, scaled_down, scale)


@relu_feedforward.register_fake
def _(x, up, up_bias, down, down_bias, scale, shift):
    return x.new_empty(x.shape), x.new_empty(x.shape)


@_backward.register_fake
def _(grad, x, unscaled, up, up_bias, scaled_down, scale):
    wide, sums = (*x.shape[:-1], up.shape[0]), 2 * x.shape[-1] + up.shape[0]
    return x.new_empty(x.shape), x.new_empty(wide), x.new_empty(wide), x.new_empty(sums, dtype=torch.float32)


def _keep(ctx, inputs, output):
    x, up, up_bias, down, down_bias, scale, shift = inputs
    _, unscaled = output
    ctx.save_for_backward(x, unscaled, up, up_bias, down, scale)
    ctx.mark_non_differentiable(unscaled)
    ctx.types = down_bias.dtype, shift.dtype


def _gradients(ctx, grad, of_unscaled):
    x, unscaled, up, up_bias, down, scale = ctx.saved_tensors
    factors = scale.float().unsqueeze(-1)
    of_x, activated, of_inner, sums = _backward(grad, x, unscaled, up, up_bias, (down * factors).to(down.dtype), scale)
    of_scale, of_shift, of_up_bias = sums.split([len(scale), len(scale), len(up_bias)])
    of_up = of_inner.flatten(0, -2).T @ x.flatten(0, -2)
    of_down = (grad.flatten(0, -2).T @ activated.flatten(0, -2)) * factors
    down_bias_type, shift_type = ctx.types
    return (
        of_x,
        of_up,
        of_up_bias.to(up_bias.dtype),
        of_down.to(down.dtype),
        (of_shift * scale).to(down_bias_type),
        of_scale.to(scale.dtype),
        of_shift.to(shift_type),
    )


relu_feedforward.register_autograd(_gradients, setup_context=_keep)
