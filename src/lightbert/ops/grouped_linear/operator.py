"""Grouped linear map as an operator: batched matmuls that read and write slices of the channels.

torch.compile's own batched matmul writes one group after the other, so that kernels after it bring a token's groups
together again, in both passes.
"""

import torch


def _blocks(x, groups):
    """The blocks of channels of x [..., g·C] as matrices, [g, tokens, C]; a view."""
    return x.flatten(0, -2).unflatten(-1, (groups, -1)).transpose(0, 1)


@torch.library.custom_op("lightbert::grouped_product", mutates_args=(), schema="(Tensor x, Tensor weight) -> Tensor")
def grouped_product(x, weight):
    """See :func:`lightbert.ops.grouped_linear.grouped_product`."""
    groups, _, outputs = weight.shape
    out = x.new_empty(*x.shape[:-1], groups * outputs)
    torch.bmm(_blocks(x, groups), weight, out=_blocks(out, groups))
    return out


@torch.library.custom_op(
    "lightbert::grouped_product_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor x, Tensor weight) -> (Tensor, Tensor)",
)
def _backward(grad, x, weight):
    groups = len(weight)
    of_x = x.new_empty(x.shape)
    torch.bmm(_blocks(grad, groups), weight.mT, out=_blocks(of_x, groups))
    of_weight = weight.new_empty(weight.shape)
    # One by one, since cuBLAS divides the sum over all tokens among processors in a plain product only.
    for inputs, outputs, result in zip(_blocks(x, groups), _blocks(grad, groups), of_weight, strict=True):
        torch.mm(inputs.mT, outputs, out=result)
    return of_x, of_weight


@grouped_product.register_fake
def _(x, weight):
    groups, _, outputs = weight.shape
    return x.new_empty(*x.shape[:-1], groups * outputs)


@_backward.register_fake
def _(grad, x, weight):
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _gradients(ctx, grad):
    return _backward(grad, *ctx.saved_tensors)


grouped_product.register_autograd(_gradients, setup_context=_keep)
