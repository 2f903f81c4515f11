"""Residual connection and layer norm: layer_norm(x + dropout(change + change_bias))."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops import kernels
from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.operators import dropout_seed, operator


def residual_norm(
    x: Tensor,
    change: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    dropout: float = 0.0,
    change_bias: Tensor | None = None,
) -> Tensor:
    """Add ``change`` to x, both [..., D], and normalize the sum over its channels; weight and bias [D].

    dropout: the probability, below 1, with which an element of the change is replaced by zero.
    change_bias [D]: the bias of the linear layer whose matmul computed the change; the kernel adds it in float32, and
    sums its gradient over all tokens in the same backward pass.
    The reference returns what autocast makes of it, float32. The kernel returns the dtype of ``change``, the half
    precision that every layer rounds its input to anyway, and computes in float32.
    """
    if has_kernel(x, change):
        seed = dropout_seed(dropout, x.device)
        return residual_norm_operator(x, change, weight, bias, eps, seed, dropout, change_bias)[0]
    if change_bias is not None:
        change = change + change_bias
    return F.layer_norm(x + F.dropout(change, dropout), weight.shape, weight, bias, eps)


def has_kernel(x: Tensor, change: Tensor) -> bool:
    """Whether the kernel computes these tensors."""
    half = as_autocast(x)
    return use_triton("residual_norm", half, fits=half.dtype is change.dtype and x.shape[-1] <= 4096)


def _fake(x: Tensor, change: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    mean, scale = (x.new_empty(x.shape[:-1], dtype=torch.float32) for _ in range(2))
    return change.new_empty(change.shape), mean, scale


@operator(
    "residual_norm(Tensor x, Tensor change, Tensor weight, Tensor bias, float eps, Tensor? seed=None,"
    " float dropout=0.0, Tensor? change_bias=None) -> (Tensor, Tensor, Tensor)",
    fake=_fake,
)
def residual_norm_operator(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """See `residual_norm`; the gradient needs the other results.

    ``seed`` is one integer, from which the elements that dropout removes are computed; None for no dropout.
    """
    return kernels.residual_norm.forward(*inputs)


def _fake_backward(grad: Tensor, x: Tensor, change: Tensor, weight: Tensor, *inputs: Any, **_: Any) -> Any:
    seed, change_bias = inputs[2:4]
    dtype = torch.promote_types(x.dtype, change.dtype) if seed is None else x.dtype
    return (
        x.new_empty(x.shape, dtype=dtype),
        change.new_empty(0 if seed is None else change.shape),
        weight.new_empty((2, *weight.shape)),
        change.new_empty(0) if change_bias is None else change_bias.new_empty(change_bias.shape),
    )


@operator(
    "residual_norm_backward(Tensor grad, Tensor x, Tensor change, Tensor weight, Tensor mean, Tensor scale,"
    " Tensor? seed, Tensor? change_bias, float dropout, Tensor? more_grad=None) -> (Tensor, Tensor, Tensor, Tensor)",
    fake=_fake_backward,
)
def residual_norm_backward_operator(
    grad: Tensor,
    x: Tensor,
    change: Tensor,
    weight: Tensor,
    mean: Tensor,
    scale: Tensor,
    seed: Tensor | None,
    change_bias: Tensor | None,
    dropout: float,
    more_grad: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The gradients of x, of the change, of weight and bias in one, and of the change's bias; empty for None."""
    inputs = (grad, x, change, weight, mean, scale, seed, dropout, change_bias, more_grad)
    # An operator returns tensors only.
    return tuple(change.new_empty(0) if of is None else of for of in kernels.residual_norm.backward(*inputs))


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, change, weight, _, _, seed, ctx.dropout, change_bias = inputs
    _, *statistics = output
    ctx.save_for_backward(x, change, weight, *statistics, seed, change_bias)
    ctx.mark_non_differentiable(*statistics)


def _gradients(ctx: Any, grad: Tensor, *_: Tensor) -> Any:
    x, change, *_, seed, change_bias = ctx.saved_tensors
    of_x, of_change, of_parameters, of_change_bias = residual_norm_backward_operator(
        grad, *ctx.saved_tensors, ctx.dropout
    )
    if seed is None:
        of_x, of_change = of_x.to(x.dtype), of_x.to(change.dtype)
    return of_x, of_change, *of_parameters.unbind(), None, None, None, None if change_bias is None else of_change_bias


residual_norm_operator.register_autograd(_gradients, setup_context=_keep)
