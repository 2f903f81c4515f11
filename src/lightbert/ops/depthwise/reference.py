"""Depthwise convolution in plain PyTorch: K shifted multiply-adds on token-major tensors."""

import torch
import torch.nn.functional as F
from torch import Tensor


def depthwise(x: Tensor, weight: Tensor, bias: Tensor | None, window: Tensor | None) -> Tensor:
    """See :func:`lightbert.ops.depthwise.depthwise`."""
    tokens, kernel = x.shape[1], weight.shape[1]
    radius = kernel // 2
    taps = weight.to(x.dtype).t()  # [K, D]
    padded = F.pad(x, (0, 0, radius, radius))  # [B, T + 2R, D]
    mixed = x.new_zeros(()) if bias is None else bias.to(x.dtype)
    for tap in range(kernel):
        seen = padded[:, tap : tap + tokens]
        if window is not None:
            seen = seen * window[:, :, tap : tap + 1]
        mixed = torch.addcmul(mixed, seen, taps[tap])
    return mixed  # [B, T, D]
