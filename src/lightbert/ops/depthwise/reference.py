"""Depthwise convolution in plain PyTorch: K shifted multiply-adds on token-major tensors."""

import torch.nn.functional as F
from torch import Tensor


def depthwise(x: Tensor, weight: Tensor, bias: Tensor | None, window: Tensor | None) -> Tensor:
    """See :func:`lightbert.ops.depthwise.depthwise`."""
    tokens, kernel = x.shape[1], weight.shape[1]
    radius = kernel // 2
    # A column of the weight is strided, and a strided factor costs the CPU its vector instructions.
    taps = weight.to(x.dtype).t().contiguous()  # [K, D]
    padded = F.pad(x, (0, 0, radius, radius))  # [B, T + 2R, D]

    def seen(tap: int) -> Tensor:
        neighbours = padded[:, tap : tap + tokens]
        return neighbours if window is None else neighbours * window[:, :, tap : tap + 1]

    mixed = seen(0) * taps[0]
    for tap in range(1, kernel):
        # In place: the sum is never read by its own gradient.
        mixed.addcmul_(seen(tap), taps[tap])
    return mixed if bias is None else mixed.add_(bias.to(x.dtype))  # [B, T, D]
