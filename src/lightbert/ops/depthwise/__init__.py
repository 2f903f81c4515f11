"""Depthwise convolution over tokens: one fixed kernel per channel."""

from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.depthwise import reference


def depthwise(x: Tensor, weight: Tensor, bias: Tensor | None = None, texts: Tensor | None = None) -> Tensor:
    """Convolve x [B, T, D] with weight [D, K] (odd K) and add bias [D] -> [B, T, D].

    Tap j of token t reads token t + j - K//2. Taps outside the row, in the padding or in another text read zeros;
    ``texts`` [B, T] is described in :mod:`lightbert.ops.texts`.
    """
    channels, kernel = weight.shape
    if x.shape[-1] != channels:
        raise InputError(f"x must have {channels} channels, as the weight, got {x.shape[-1]}")
    if kernel % 2 == 0:
        raise InputError(f"the kernel size must be odd, got {kernel}; use {kernel + 1}")
    x = as_autocast(x)
    if use_triton("depthwise", x, fits=kernel <= 17):
        from lightbert.ops.depthwise import operator

        mixed: Tensor = operator.depthwise(x, weight, bias, texts)[0]
        return mixed
    return reference.depthwise(x, weight, bias, texts)
