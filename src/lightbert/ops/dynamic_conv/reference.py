"""Dynamic convolution in plain PyTorch: K shifted multiply-adds, no unfolded copy."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops.texts import is_packed, taps_within_text, zero_padding


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


def dynamic_conv(values: Tensor, logits: Tensor, texts: Tensor | None) -> Tensor:
    """See :func:`lightbert.ops.dynamic_conv.dynamic_conv`."""
    weights = torch.softmax(logits, dim=-1, dtype=_exact(logits)).to(values.dtype)  # [B, T, H, K]
    if texts is not None and is_packed(texts):
        return window_sum(values, weights * taps_within_text(texts, logits.shape[-1]).unsqueeze(2))
    return window_sum(zero_padding(values, texts), weights)


def softmax_within_text(logits: Tensor, texts: Tensor | None) -> Tensor:
    """See :func:`lightbert.ops.dynamic_conv.softmax_within_text`."""
    kernel = logits.shape[-1]
    every = logits.new_ones(logits.shape[:2], dtype=torch.bool)
    middle = torch.arange(kernel, device=logits.device) == kernel // 2
    reached = taps_within_text(every if texts is None else texts, kernel) | middle  # [B, T, K]
    return torch.softmax(logits.masked_fill(~reached.unsqueeze(2), float("-inf")), dim=-1, dtype=_exact(logits))


def _exact(logits: Tensor) -> torch.dtype:
    return torch.promote_types(logits.dtype, torch.float32)
