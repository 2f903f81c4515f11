"""The kernels of the narrow feed-forward for autograd, torch.compile and fake tensors."""

import torch

from lightbert.ops.partial_sums.triton import sum_programs
from lightbert.ops.relu_feedforward import triton
from lightbert.ops.relu_feedforward.weights import triton as weights


@torch.library.custom_op(
    "lightbert::relu_feedforward",
    mutates_args=(),
    schema=(
        "(Tensor x, Tensor up, Tensor up_bias, Tensor down, Tensor down_bias, Tensor scale, Tensor shift)"
        " -> (Tensor, Tensor)"
    ),
)
def relu_feedforward(x, up, up_bias, down, down_bias, scale, shift):
    """See :func:`lightbert.ops.relu_feedforward.relu_feedforward`; the second result is for the backward pass."""
    return triton.forward(x, up, up_bias, down, down_bias, scale, shift)


@torch.library.custom_op(
    "lightbert::relu_feedforward_backward",
    mutates_args=(),
    schema=(
        "(Tensor grad, Tensor x, Tensor positive, Tensor up, Tensor up_bias, Tensor down, Tensor scaled_down, "
        "Tensor scale) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
)
def _backward(grad, x, positive, up, up_bias, down, scaled_down, scale):
    """The gradients of x, up, up_bias and down, and two sums over tokens [2, D].

    The sums are of grad · (x + change) and of grad. The change is a product with the second weight, and so is its share
    of the first sum: the change of a token is not needed again.
    """
    shares = weights.scale_shares(len(up))
    of_x, partial = triton.backward(grad, x, positive, up, scaled_down, scale, more_rows=shares)
    of_weights = weights.gradients(grad, x, up, up_bias, down, scaled_down, scale, partial[-shares:])
    return of_x, *of_weights, sum_programs(partial, torch.float32)


@relu_feedforward.register_fake
def _(x, up, up_bias, down, down_bias, scale, shift):
    words = up.shape[0] // triton.word_bits(up.shape[0])
    return x.new_empty(x.shape), x.new_empty((words, x.shape[:-1].numel()), dtype=torch.int32)


@_backward.register_fake
def _(grad, x, positive, up, up_bias, down, scaled_down, scale):
    of_weights = (weight.new_empty(weight.shape) for weight in (up, up_bias, down))
    return x.new_empty(x.shape), *of_weights, x.new_empty((2, x.shape[-1]), dtype=torch.float32)


def _keep(ctx, inputs, output):
    x, up, up_bias, down, down_bias, scale, shift = inputs
    _, positive = output
    ctx.save_for_backward(x, positive, up, up_bias, down, down_bias, scale)
    ctx.mark_non_differentiable(positive)
    ctx.shift_type = shift.dtype


def _gradients(ctx, grad, of_positive):
    x, positive, up, up_bias, down, down_bias, scale = ctx.saved_tensors
    scaled_down = (down * scale.float().unsqueeze(-1)).to(down.dtype)
    of_x, of_up, of_up_bias, of_down, sums = _backward(grad, x, positive, up, up_bias, down, scaled_down, scale)
    of_shift = sums[1]
    return (
        of_x,
        of_up,
        of_up_bias,
        of_down,
        (of_shift * scale).to(down_bias.dtype),
        (sums[0] + of_shift * down_bias).to(scale.dtype),
        of_shift.to(ctx.shift_type),
    )


relu_feedforward.register_autograd(_gradients, setup_context=_keep)
