"""Dynamic convolution: one kernel per token and head, generated from the input."""

import torch.nn.functional as F
from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.backend import use_triton
from lightbert.ops.dynamic_conv import reference

window_sum = reference.window_sum

PADDING = 8
"""The kernel takes the logits of a head padded to a multiple of this: 16 bytes, which a thread writes at once."""


def dynamic_conv(values: Tensor, logits: Tensor, texts: Tensor | None = None, taps: int | None = None) -> Tensor:
    """Softmax ``logits`` over their taps and convolve ``values`` with the result (ConvBERT Eq. 4 and 5).

    values [B, T, H·E], logits [B, T, H, K] with odd K, texts [B, T] or None -> [B, T, H·E].
    Tap j of token t reads token t + j - K//2. A tap beyond the row, in the padding or in another text (see
    :mod:`lightbert.ops.texts`) reads zero; the other weights are not renormalized.

    taps: K, if the logits have more entries than that; those after the first K are padding, which is not read and gets
    zeros as gradient. Without it all are taps.
    """
    (_, _, width), (_, _, n_heads, padded) = values.shape, logits.shape
    kernel = padded if taps is None else taps
    if kernel % 2 == 0:
        raise InputError(f"the kernel size must be odd, got {kernel}; use {kernel + 1}")
    if width % n_heads:
        raise InputError(f"the number of heads ({n_heads}) must divide the width of the values, {width}")
    if use_triton("dynamic_conv", values, fits=kernel <= 33 and width // n_heads <= 256):
        from lightbert.ops.dynamic_conv import operator

        logits = F.pad(logits, (0, -padded % PADDING)) if padded % PADDING else logits
        mixed: Tensor = operator.dynamic_conv(values, logits, texts, kernel)[0]
        return mixed
    return reference.dynamic_conv(values, logits[..., :kernel], texts)


def softmax_within_text(logits: Tensor, texts: Tensor | None = None) -> Tensor:
    """Softmax logits [B, T, H, K] over the taps that read a real token of the same text, in fp32 at least.

    Unlike in ``dynamic_conv``, the weights of these taps sum to 1. The middle tap is always included, so that padding
    tokens have finite weights.
    """
    return reference.softmax_within_text(logits, texts)
