"""The narrow feed-forward of MobileBERT with its residual, scale and shift, as one function."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops import kernels
from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.operators import empty_like, operator

_WIDTHS = (16, 32, 64, 128)
"""The kernel holds all channels of a token on chip, and needs powers of two."""
_INNER = 16
"""It takes the inner width in parts of a multiple of this."""
_GPUS = (9, 10)
"""Compute capabilities, the first digit: GPUs with enough shared memory for its tiles, H100 to B200."""


def relu_feedforward(
    x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, scale: Tensor, shift: Tensor
) -> Tensor:
    """(x + relu(x upᵀ + up_bias) downᵀ + down_bias) · scale + shift.

    x [..., D], up [I, D], down [D, I]. The kernel keeps no activations of the inner width for the backward pass, the
    largest tensors of a block.
    """
    if has_kernel(x, up.shape[0]):
        x = as_autocast(x)
        weights = (up.to(x.dtype), up_bias, down.to(x.dtype), down_bias)
        return relu_feedforward_operator(x, *weights, scale, shift)[0]
    return (x + F.linear(F.relu(F.linear(x, up, up_bias)), down, down_bias)) * scale + shift


def has_kernel(x: Tensor, inner: int) -> bool:
    """Whether the kernel computes a feed-forward of this inner width on x."""
    fits = x.shape[-1] in _WIDTHS and inner % _INNER == 0
    return use_triton("relu_feedforward", as_autocast(x), fits=fits and _has_memory(x.device))


def _has_memory(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.get_device_capability(device)[0] in _GPUS


def _fake(x: Tensor, up: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
    words = up.shape[0] // kernels.relu_feedforward.word_bits(up.shape[0])
    return x.new_empty(x.shape), x.new_empty((words, x.shape[:-1].numel()), dtype=torch.int32)


@operator(
    "relu_feedforward(Tensor x, Tensor up, Tensor up_bias, Tensor down, Tensor down_bias, Tensor scale, Tensor shift)"
    " -> (Tensor, Tensor)",
    fake=_fake,
)
def relu_feedforward_operator(*inputs: Tensor) -> tuple[Tensor, Tensor]:
    """See `relu_feedforward`; the second result is for the backward pass."""
    return kernels.relu_feedforward.forward(*inputs)


def _fake_backward(
    grad: Tensor, x: Tensor, positive: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, *_: Tensor
) -> tuple[Tensor, ...]:
    return *empty_like(x, up, up_bias, down), x.new_empty((2, x.shape[-1]), dtype=torch.float32)


@operator(
    "relu_feedforward_backward(Tensor grad, Tensor x, Tensor positive, Tensor up, Tensor up_bias, Tensor down,"
    " Tensor scaled_down, Tensor scale) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    fake=_fake_backward,
)
def _backward(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return kernels.relu_feedforward.all_gradients(*inputs)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, up, up_bias, down, down_bias, scale, shift = inputs
    _, positive = output
    ctx.save_for_backward(x, positive, up, up_bias, down, down_bias, scale)
    ctx.mark_non_differentiable(positive)
    ctx.shift_type = shift.dtype


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> Any:
    x, positive, up, up_bias, down, down_bias, scale = ctx.saved_tensors
    scaled_down = (down * scale.float().unsqueeze(-1)).to(down.dtype)
    *of_inputs, sums = _backward(grad, x, positive, up, up_bias, down, scaled_down, scale)
    of_shift = sums[1]
    of_down_bias = (of_shift * scale).to(down_bias.dtype)
    of_scale = (sums[0] + of_shift * down_bias).to(scale.dtype)
    return *of_inputs, of_down_bias, of_scale, of_shift.to(ctx.shift_type)


relu_feedforward_operator.register_autograd(_gradients, setup_context=_keep)
