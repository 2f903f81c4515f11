"""Sampling in plain PyTorch: a search in the cumulative sum of the softmax."""

import torch
from torch import Tensor


def sample(logits: Tensor, chances: Tensor) -> Tensor:
    """See :func:`lightbert.ops.sampling.sample`."""
    heights = torch.softmax(logits.float(), dim=-1).cumsum(dim=-1)  # [..., V]
    # Rounding can make the last sum less than 1; without the clamp a larger chance would give index V.
    levels = (chances * heights[..., -1]).unsqueeze(-1)
    return torch.searchsorted(heights, levels).squeeze(-1).clamp(max=logits.shape[-1] - 1)
