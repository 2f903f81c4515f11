"""Depthwise convolution over tokens: every channel has its own fixed kernel."""

from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.depthwise import reference


def depthwise(x: Tensor, weight: Tensor, bias: Tensor | None = None, texts: Tensor | None = None) -> Tensor:
    """Convolve x [B, T, D] with weight [D, K] (odd K) and add bias [D] -> [B, T, D].

    Tap j of token t reads token t + j - K//2; zeros beyond the row, in the padding and in other texts, as ``texts``
    [B, T] tells them apart (see :mod:`lightbert.ops.texts`).
    """
    channels, kernel = weight.shape
    if x.shape[-1] != channels:
        raise InputError(f"a depthwise convolution of {channels} channels was given {x.shape[-1]}")
    if kernel % 2 == 0:
        raise InputError(f"a depthwise convolution needs an odd kernel, got {kernel}: use {kernel + 1}")
    x = as_autocast(x)
    if use_triton(x, fits=kernel <= 17):
        from lightbert.ops.depthwise import operator

        mixed: Tensor = operator.depthwise(x, weight, bias, texts)
        return mixed
    return reference.depthwise(x, weight, bias, texts)
