"""How kernels see a batch: its rows one after the other as a single sequence of B·T tokens."""

import torch
from torch import Tensor


def flat(x: Tensor) -> Tensor:
    """X [B, T, D], copied unless its tokens lie at equal distances with their channels side by side."""
    _, tokens, _ = x.shape
    regular = x.stride(2) == 1 and x.stride(0) == tokens * x.stride(1)
    return x if regular else x.contiguous()


def text_rule(texts: Tensor | None) -> tuple[Tensor | None, int]:
    """The numbers to compare and how: 0 not at all, 1 zero is padding, 2 another number is another text as well."""
    if texts is None:
        return None, 0
    if texts.dtype is torch.bool:
        return texts.contiguous().view(torch.uint8), 1
    return texts.contiguous(), 2
