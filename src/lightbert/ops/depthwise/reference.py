"""Depthwise convolution in plain PyTorch: K shifted multiply-adds on token-major tensors."""

from torch import Tensor

from lightbert.ops.texts import neighbours


def depthwise(x: Tensor, weight: Tensor, bias: Tensor | None, texts: Tensor | None) -> Tensor:
    """See :func:`lightbert.ops.depthwise.depthwise`."""
    # A column of the weight is strided, and a strided factor costs the CPU its vector instructions.
    taps = weight.to(x.dtype).t().contiguous()  # [K, D]
    first, *others = taps.unbind()
    read = neighbours(x, weight.shape[1], texts)
    mixed = next(read) * first
    for tap in others:
        # In place: the sum is never read by its own gradient.
        mixed.addcmul_(next(read), tap)
    return mixed if bias is None else mixed.add_(bias.to(x.dtype))  # [B, T, D]
