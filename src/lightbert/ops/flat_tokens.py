"""The input layout of the kernels: the rows of a batch as one sequence of B·T tokens."""

import torch
from torch import Tensor


def is_flat(x: Tensor) -> bool:
    """Whether x [B, T, D] has contiguous channels and a constant stride between tokens, as a slice of channels has."""
    return x.stride(2) == 1 and x.stride(0) == x.shape[1] * x.stride(1)


def flat(x: Tensor) -> Tensor:
    """Return x [B, T, D] with contiguous channels and a constant stride between tokens, copied if necessary."""
    return x if is_flat(x) else x.contiguous()


def text_rule(texts: Tensor | None) -> tuple[Tensor | None, int]:
    """The text numbers and the rule for them: 0 no texts, 1 zeros are padding, 2 also compare the numbers."""
    if texts is None:
        return None, 0
    if texts.dtype is torch.bool:
        return texts.contiguous().view(torch.uint8), 1
    return texts.contiguous(), 2
