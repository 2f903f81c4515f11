"""Which tokens belong to which text: how every reference reads the ``texts`` [B, T] that the ops take.

``texts`` is one of three things:

- None: every token of a row is real, and a row is one text;
- booleans: one text per row, False in the padding;
- integers: the number of the text that each token belongs to, 0 in the padding. A text is one piece of a row.

A tap that leaves its row, its text or reaches the padding reads zeros. The dtype says which rule applies, so that
neither a reference nor a kernel has to look at the values to choose one.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor


def is_packed(texts: Tensor | None) -> bool:
    """Whether a row may hold more than one text, so that tokens have to be compared with their neighbours."""
    return texts is not None and texts.dtype is not torch.bool


def zero_padding(x: Tensor, texts: Tensor | None) -> Tensor:
    """Clear the padding of x [B, T, D]; packed rows are left to ``taps_within_text``, which clears it as well."""
    return x if texts is None or is_packed(texts) else x.masked_fill(~texts.unsqueeze(-1), 0.0)


def taps_within_text(texts: Tensor, kernel: int) -> Tensor:
    """Which taps of each token read a real token, of the same text if rows are packed: [B, T] -> [B, T, K]."""
    radius, tokens = kernel // 2, texts.shape[1]
    padded = F.pad(texts, (radius, radius))  # False or 0 beyond the row, which is padding
    neighbours = torch.stack([padded[:, tap : tap + tokens] for tap in range(kernel)], dim=-1)
    if not is_packed(texts):
        return neighbours
    return (neighbours == texts.unsqueeze(-1)) & (neighbours != 0)


def neighbours(x: Tensor, kernel: int, texts: Tensor | None) -> Iterator[Tensor]:
    """What each tap in turn reads around the tokens of x [B, T, D]: K tensors [B, T, D]."""
    radius, tokens = kernel // 2, x.shape[1]
    within = taps_within_text(texts, kernel) if texts is not None and is_packed(texts) else None
    padded = F.pad(zero_padding(x, texts), (0, 0, radius, radius))  # [B, T + 2R, D]
    for tap in range(kernel):
        read = padded[:, tap : tap + tokens]
        yield read if within is None else read * within[:, :, tap : tap + 1]


def visible_keys(texts: Tensor) -> Tensor:
    """Which keys each query attends to: [B, 1, 1, T] where all queries of a row agree, else [B, 1, T, T]."""
    if not is_packed(texts):
        return texts[:, None, None, :]
    return (texts[:, :, None] == texts[:, None, :])[:, None]
