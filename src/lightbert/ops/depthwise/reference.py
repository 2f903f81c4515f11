"""Depthwise convolution in plain PyTorch: K shifted multiply-adds on token-major tensors."""

from torch import Tensor

from lightbert.ops.texts import neighbours


def depthwise(x: Tensor, weight: Tensor, bias: Tensor | None, texts: Tensor | None) -> Tensor:
    """See :func:`lightbert.ops.depthwise.depthwise`."""
    # A strided column of the weight would prevent vectorization on CPUs.
    taps = weight.to(x.dtype).t().contiguous()  # [K, D]
    first, *others = taps.unbind()
    read = neighbours(x, weight.shape[1], texts)
    mixed = next(read) * first
    for tap in others:
        # In place is safe: the backward pass doesn't use the sum.
        mixed.addcmul_(next(read), tap)
    return mixed if bias is None else mixed.add_(bias.to(x.dtype))  # [B, T, D]
