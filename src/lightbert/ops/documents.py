"""The ``texts`` argument [B, T] of the ops: which text each token belongs to.

``texts`` is one of:

- None: every token of a row is real, and a row is one text;
- booleans: one text per row, False in the padding;
- integers, document ids: the number of the text that each token belongs to, 0 in the padding; each text is contiguous.

A tap outside the row, in the padding or in another text reads zero. The dtype determines the rule, so that neither the
references nor the kernels inspect the values.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor


def is_packed(texts: Tensor | None) -> bool:
    """Whether a row may contain several texts, so that the document ids of neighbours must be compared."""
    return texts is not None and texts.dtype is not torch.bool


def zero_padding(x: Tensor, texts: Tensor | None) -> Tensor:
    """Set the padding of x [B, T, D] to zero. Packed rows are returned as they are: ``taps_within_text`` masks them."""
    return x if texts is None or is_packed(texts) else x.masked_fill(~texts.unsqueeze(-1), 0.0)


def taps_within_text(texts: Tensor, kernel: int) -> Tensor:
    """Which taps of each token read a real token, of the same text if rows are packed: [B, T] -> [B, T, K]."""
    radius, tokens = kernel // 2, texts.shape[1]
    padded = F.pad(texts, (radius, radius))  # False or 0 beyond the row, which is padding
    read = torch.stack([padded[:, tap : tap + tokens] for tap in range(kernel)], dim=-1)
    return read if not is_packed(texts) else (read == texts.unsqueeze(-1)) & (read != 0)


def neighbours(x: Tensor, kernel: int, texts: Tensor | None) -> Iterator[Tensor]:
    """Yield the input of each tap: K tensors [B, T, D] for x [B, T, D]."""
    radius, tokens = kernel // 2, x.shape[1]
    within = taps_within_text(texts, kernel) if texts is not None and is_packed(texts) else None
    padded = F.pad(zero_padding(x, texts), (0, 0, radius, radius))  # [B, T + 2R, D]
    for tap in range(kernel):
        read = padded[:, tap : tap + tokens]
        yield read if within is None else read * within[:, :, tap : tap + 1]


def visible_keys(texts: Tensor) -> Tensor:
    """Which keys each query attends to: [B, 1, 1, T] for one text per row, [B, 1, T, T] for packed rows."""
    if not is_packed(texts):
        return texts[:, None, None, :]
    return (texts[:, :, None] == texts[:, None, :])[:, None]
