"""Dynamic convolution: every token mixes its neighbours with a kernel of its own, one kernel per head."""

from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.dynamic_conv import reference

window_sum = reference.window_sum


def dynamic_conv(values: Tensor, logits: Tensor, window: Tensor | None = None) -> Tensor:
    """Softmax ``logits`` over their taps and convolve ``values`` with the result (ConvBERT Eq. 4 and 5).

    values [B, T, H·E], logits [B, T, H, K] with odd K, window [B, T, K] or None -> [B, T, H·E].
    Tap j of token t reads token t + j - K//2; taps outside the row or where ``window`` is False read zero, and the
    weight they were given is lost, as with zero padding.
    """
    (_, _, width), (_, _, n_heads, kernel) = values.shape, logits.shape
    if kernel % 2 == 0:
        raise InputError(f"a dynamic convolution needs an odd kernel, got {kernel}: use {kernel + 1}")
    if width % n_heads:
        raise InputError(f"{n_heads} kernels cannot share {width} value channels: use a multiple of {n_heads}")
    return reference.dynamic_conv(values, logits, window)
