"""Dynamic convolution: one kernel per token and head, generated from the input."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops import kernels
from lightbert.ops.backend import use_triton
from lightbert.ops.documents import is_packed, taps_within_text, zero_padding
from lightbert.ops.operators import empty_like, operator

PADDING = 8
"""The kernel takes the logits of a head padded to a multiple of this: 16 bytes, which a thread writes at once."""


def dynamic_conv(values: Tensor, logits: Tensor, texts: Tensor | None = None, taps: int | None = None) -> Tensor:
    """Softmax ``logits`` over their taps and convolve ``values`` with the result (ConvBERT Eq. 4 and 5).

    values [B, T, H·E], logits [B, T, H, K], texts [B, T] or None -> [B, T, H·E].
    Tap j of token t reads token t + j - K//2. A tap beyond the row, in the padding or in another text (see
    :mod:`lightbert.ops.documents`) reads zero; the other weights are not renormalized.

    taps: K, if the logits have more entries than that; those after the first K are padding, which is not read and gets
    zeros as gradient. Without it all are taps.
    """
    (_, _, width), (_, _, n_heads, padded) = values.shape, logits.shape
    kernel = padded if taps is None else taps
    if width % n_heads:
        raise InputError(f"the number of heads ({n_heads}) must divide the width of the values, {width}")
    if use_triton("dynamic_conv", values, fits=kernel <= 33 and kernel % 2 == 1 and width // n_heads <= 256):
        logits = F.pad(logits, (0, -padded % PADDING)) if padded % PADDING else logits
        return dynamic_conv_operator(values, logits, texts, kernel)[0]
    weights = torch.softmax(logits[..., :kernel], dim=-1, dtype=_exact(logits)).to(values.dtype)  # [B, T, H, K]
    if texts is not None and is_packed(texts):
        return window_sum(values, weights * taps_within_text(texts, kernel).unsqueeze(2))
    return window_sum(zero_padding(values, texts), weights)


def window_sum(values: Tensor, weights: Tensor) -> Tensor:
    """Sum the window around each token: values [B, T, H·E] with weights [B, T, H, K] -> [B, T, H·E]."""
    tokens, n_heads, kernel = weights.shape[1:]
    radius = kernel // 2
    heads = values.unflatten(-1, (n_heads, -1))  # [B, T, H, E]
    padded = F.pad(heads, (0, 0, 0, 0, radius, radius))  # [B, T + 2R, H, E]
    mixed = padded[:, :tokens] * weights[..., :1]
    for tap in range(1, kernel):
        # In place is safe: the backward pass doesn't use the sum.
        mixed.addcmul_(padded[:, tap : tap + tokens], weights[..., tap : tap + 1])
    return mixed.flatten(-2)


def softmax_within_text(logits: Tensor, texts: Tensor | None = None) -> Tensor:
    """Softmax logits [B, T, H, K] over the taps that read a real token of the same text, in fp32 at least.

    Unlike in ``dynamic_conv``, the weights of these taps sum to 1. The middle tap is always included, so that padding
    tokens have finite weights.
    """
    kernel = logits.shape[-1]
    real = logits.new_ones(logits.shape[:2], dtype=torch.bool)
    middle = torch.arange(kernel, device=logits.device) == kernel // 2
    reached = taps_within_text(real if texts is None else texts, kernel) | middle  # [B, T, K]
    return torch.softmax(logits.masked_fill(~reached.unsqueeze(2), float("-inf")), dim=-1, dtype=_exact(logits))


def _exact(logits: Tensor) -> torch.dtype:
    return torch.promote_types(logits.dtype, torch.float32)


@operator(
    "dynamic_conv(Tensor values, Tensor logits, Tensor? texts, int taps) -> (Tensor, Tensor)",
    fake=lambda values, logits, texts, taps: empty_like(values, logits),
)
def dynamic_conv_operator(values: Tensor, logits: Tensor, texts: Tensor | None, taps: int) -> tuple[Tensor, Tensor]:
    """See `dynamic_conv`; the logits must be padded to a multiple of `PADDING`.

    The second result is the softmax, which the backward pass reads.
    """
    return kernels.dynamic_conv.forward(values, logits, texts, taps)


@operator(
    "dynamic_conv_backward(Tensor grad, Tensor values, Tensor kept, int taps, bool signed) -> (Tensor, Tensor)",
    fake=lambda grad, values, kept, taps, signed: empty_like(values, kept),
)
def _backward(grad: Tensor, values: Tensor, kept: Tensor, taps: int, signed: bool) -> tuple[Tensor, Tensor]:
    return kernels.dynamic_conv.backward(grad, values, kept, taps, signed=signed)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    values, _, texts, ctx.taps = inputs
    ctx.signed = texts is not None
    ctx.save_for_backward(values, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> Any:
    return *_backward(grad, *ctx.saved_tensors, ctx.taps, ctx.signed), None, None


dynamic_conv_operator.register_autograd(_gradients, setup_context=_keep)
