"""Sampling in plain PyTorch: the cumulative sum of the softmax, searched."""

import torch
from torch import Tensor


def sample(logits: Tensor, chances: Tensor) -> Tensor:
    """See :func:`lightbert.ops.sampling.sample`."""
    heights = torch.softmax(logits.float(), dim=-1).cumsum(dim=-1)  # [..., V]
    # The last height is 1 but for rounding, and a number above it would fall off the end.
    levels = (chances * heights[..., -1]).unsqueeze(-1)
    return torch.searchsorted(heights, levels).squeeze(-1).clamp(max=logits.shape[-1] - 1)
