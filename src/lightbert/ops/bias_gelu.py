"""Bias and GELU, alone or with a matmul: what follows the first matmul of a feed-forward."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops import kernels
from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.operators import empty_like, operator, save_inputs


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Apply GELU, in its erf form, to x [..., D] + bias [D]."""
    if has_kernel(x):
        return bias_gelu_operator(x, bias)
    return F.gelu(x + bias)


def gelu_linear(x: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """Apply GELU to x [..., D] + bias [D], then a linear layer without bias, weight [E, D].

    The kernel doesn't keep the activations, the largest tensors of a block: the backward pass computes them again.
    """
    if has_kernel(x):
        return gelu_linear_operator(x, bias, weight.to(x.dtype))
    return F.linear(F.gelu(x + bias), weight)


def gelu_score(x: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """Apply GELU to x [..., D] + bias [D], then a linear layer with one output and no bias, weight [D] -> [...].

    The kernel reads x once in either pass, writes no activations, and returns fp32.
    """
    if has_kernel(x):
        return gelu_score_operator(x, bias, weight)
    return F.linear(F.gelu(x + bias), weight.unsqueeze(0)).squeeze(-1)


def has_kernel(x: Tensor) -> bool:
    """Whether the kernel computes x, or what a linear layer makes of x."""
    return use_triton("bias_gelu", as_autocast(x), fits=True)


@operator("bias_gelu(Tensor x, Tensor bias) -> Tensor", fake=lambda x, bias: x.new_empty(x.shape))
def bias_gelu_operator(x: Tensor, bias: Tensor) -> Tensor:
    """See `bias_gelu`."""
    return kernels.bias_gelu.forward(x, bias)


@operator(
    "bias_gelu_backward(Tensor grad, Tensor x, Tensor bias) -> (Tensor, Tensor)",
    fake=lambda grad, x, bias: empty_like(x, bias),
)
def _bias_gelu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return kernels.bias_gelu.backward(grad, x, bias)


def _bias_gelu_gradients(ctx: Any, grad: Tensor) -> Any:
    return _bias_gelu_backward(grad, *ctx.saved_tensors)


bias_gelu_operator.register_autograd(_bias_gelu_gradients, setup_context=save_inputs)


@operator(
    "gelu_linear(Tensor x, Tensor bias, Tensor weight) -> Tensor",
    fake=lambda x, bias, weight: x.new_empty((*x.shape[:-1], weight.shape[0])),
)
def gelu_linear_operator(x: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """See `gelu_linear`."""
    return F.linear(kernels.bias_gelu.forward(x, bias), weight)


@operator(
    "bias_gelu_again(Tensor grad, Tensor x, Tensor bias) -> (Tensor, Tensor, Tensor)",
    fake=lambda grad, x, bias: empty_like(x, bias, x),
)
def _bias_gelu_again(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x and of the bias, and the activations."""
    activated = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return *kernels.bias_gelu.backward(grad, x, bias, activated), activated


def _gelu_linear_gradients(ctx: Any, grad: Tensor) -> Any:
    x, bias, weight = ctx.saved_tensors
    of_x, of_bias, activated = _bias_gelu_again(grad @ weight, x, bias)
    return of_x, of_bias, grad.flatten(0, -2).T @ activated.flatten(0, -2)


gelu_linear_operator.register_autograd(_gelu_linear_gradients, setup_context=save_inputs)


@operator(
    "gelu_score(Tensor x, Tensor bias, Tensor weight) -> Tensor",
    fake=lambda x, bias, weight: x.new_empty(x.shape[:-1], dtype=torch.float32),
)
def gelu_score_operator(x: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """See `gelu_score`."""
    return kernels.bias_gelu.score_forward(x, bias, weight)


@operator(
    "gelu_score_backward(Tensor grad, Tensor x, Tensor bias, Tensor weight) -> (Tensor, Tensor, Tensor)",
    fake=lambda grad, x, bias, weight: empty_like(x, bias, weight),
)
def _gelu_score_backward(grad: Tensor, x: Tensor, bias: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return kernels.bias_gelu.score_backward(grad, x, bias, weight)


def _gelu_score_gradients(ctx: Any, grad: Tensor) -> Any:
    return _gelu_score_backward(grad, *ctx.saved_tensors)


gelu_score_operator.register_autograd(_gelu_score_gradients, setup_context=save_inputs)
