"""The narrow feed-forward of MobileBERT with its residual, scale and shift, as one function."""

import torch
from torch import Tensor

from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.relu_feedforward import reference

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
        from lightbert.ops.relu_feedforward import operator

        x = as_autocast(x)
        out, _ = operator.relu_feedforward(x, up.to(x.dtype), up_bias, down.to(x.dtype), down_bias, scale, shift)
        result: Tensor = out
        return result
    return reference.relu_feedforward(x, up, up_bias, down, down_bias, scale, shift)


def has_kernel(x: Tensor, inner: int) -> bool:
    """Whether the kernel computes a feed-forward of this inner width on x."""
    fits = x.shape[-1] in _WIDTHS and inner % _INNER == 0
    return use_triton("relu_feedforward", as_autocast(x), fits=fits and _has_memory(x.device))


def _has_memory(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.get_device_capability(device)[0] in _GPUS
