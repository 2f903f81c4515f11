"""Grouped linear map: independent blocks of channels (ConvBERT Eq. 7).

On a GPU, an operator has batched matmuls that read and write slices of the channels. torch.compile's own batched matmul
writes one group after the other, so that kernels after it bring a token's groups together again, in both passes.
"""

from typing import Any

import torch
from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.backend import as_autocast, on_gpu
from lightbert.ops.operators import empty_like, operator, save_inputs


def grouped_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Map x [..., g·I] by weight [g, I, O] block by block, then add bias [g·O]."""
    # Under autocast a float32 bias would make the result float32; a linear layer rounds its bias as well.
    return grouped_product(x, weight) + as_autocast(bias)


def grouped_product(x: Tensor, weight: Tensor) -> Tensor:
    """Map x [..., g·I] by weight [g, I, O] block by block: [..., g·O]."""
    groups, inputs, _ = weight.shape
    if x.shape[-1] != groups * inputs:
        raise InputError(f"x must have {groups} × {inputs} channels, as the weight, got {x.shape[-1]}")
    if on_gpu(x):
        return grouped_product_operator(as_autocast(x), as_autocast(weight))
    return torch.einsum("...gi,gio->...go", x.unflatten(-1, (groups, -1)), weight).flatten(-2)


def _blocks(x: Tensor, groups: int) -> Tensor:
    """The blocks of channels of x [..., g·C] as matrices, [g, tokens, C]; a view."""
    blocks: Tensor = x.flatten(0, -2).unflatten(-1, (groups, -1))
    return blocks.transpose(0, 1)


@operator(
    "grouped_product(Tensor x, Tensor weight) -> Tensor",
    fake=lambda x, weight: x.new_empty(*x.shape[:-1], weight.shape[0] * weight.shape[2]),
)
def grouped_product_operator(x: Tensor, weight: Tensor) -> Tensor:
    """See `grouped_product`."""
    groups, _, outputs = weight.shape
    out = x.new_empty(*x.shape[:-1], groups * outputs)
    torch.bmm(_blocks(x, groups), weight, out=_blocks(out, groups))
    return out


@operator(
    "grouped_product_backward(Tensor grad, Tensor x, Tensor weight) -> (Tensor, Tensor)",
    fake=lambda grad, x, weight: empty_like(x, weight),
)
def _backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    groups = len(weight)
    of_x, of_weight = empty_like(x, weight)
    torch.bmm(_blocks(grad, groups), weight.mT, out=_blocks(of_x, groups))
    # One by one, since cuBLAS divides the sum over all tokens among processors in a plain product only.
    for inputs, outputs, result in zip(_blocks(x, groups), _blocks(grad, groups), of_weight, strict=True):
        torch.mm(inputs.mT, outputs, out=result)
    return of_x, of_weight


def _gradients(ctx: Any, grad: Tensor) -> Any:
    return _backward(grad, *ctx.saved_tensors)


grouped_product_operator.register_autograd(_gradients, setup_context=save_inputs)
