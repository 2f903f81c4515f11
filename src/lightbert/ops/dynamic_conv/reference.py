"""Dynamic convolution in plain PyTorch: K shifted multiply-adds, no unfolded copy."""

import torch
import torch.nn.functional as F
from torch import Tensor


def window_sum(values: Tensor, weights: Tensor) -> Tensor:
    """Sum the window around each token: values [B, T, H·E] with weights [B, T, H, K] -> [B, T, H·E]."""
    tokens, n_heads, kernel = weights.shape[1:]
    radius = kernel // 2
    heads = values.unflatten(-1, (n_heads, -1))  # [B, T, H, E]
    padded = F.pad(heads, (0, 0, 0, 0, radius, radius))  # [B, T + 2R, H, E]
    mixed = padded[:, :tokens] * weights[..., :1]
    for tap in range(1, kernel):
        # In place: the sum is never read by its own gradient.
        mixed.addcmul_(padded[:, tap : tap + tokens], weights[..., tap : tap + 1])
    return mixed.flatten(-2)


def dynamic_conv(values: Tensor, logits: Tensor, window: Tensor | None) -> Tensor:
    """See :func:`lightbert.ops.dynamic_conv.dynamic_conv`."""
    exact = torch.promote_types(logits.dtype, torch.float32)
    weights = torch.softmax(logits, dim=-1, dtype=exact).to(values.dtype)  # [B, T, H, K]
    return window_sum(values, weights if window is None else weights * window.unsqueeze(2))
