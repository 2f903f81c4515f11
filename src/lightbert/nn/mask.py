"""What the padding and packing of a batch mean to the parts, prepared once per batch."""

import torch
from torch import Tensor

from lightbert.errors import InputError


class Mask:
    """A boolean mask [B, T] (True = real token), or integers that number the texts packed into a row (0 = padding).

    Attention reads ``visible``, convolutions call ``zero`` on what they are about to read and pass ``window`` on to the
    op, embeddings read ``positions``. All of them are None, and cost nothing, when there is no padding.
    With ``released`` padding only attention is masked, as in the released ConvBERT and MobileBERT (their
    convolutions and trigrams read the padding, and positions count it).
    """

    def __init__(self, mask: Tensor | None, *, released: bool = False) -> None:
        self.visible: Tensor | None = None  # [B, 1, 1, T] or [B, 1, T, T]
        self.positions: Tensor | None = None  # [B, T]
        self.keep: Tensor | None = None  # [B, T]
        self._texts: Tensor | None = None  # [B, T]
        self._windows: dict[int, Tensor] = {}
        if mask is None:
            return
        if mask.dtype is torch.bool:
            # A row of nothing but padding sees all of itself: its states mean nothing, but they are numbers.
            self.visible = (mask | ~mask.any(dim=1, keepdim=True))[:, None, None, :]
            if not released:
                self.keep = mask
                self.positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        elif released:
            raise InputError(
                f"a model with released padding cannot keep packed texts apart: give a boolean mask, not {mask.dtype}"
            )
        else:
            self._texts = mask
            self.keep = mask > 0
            self.visible = (mask[:, :, None] == mask[:, None, :])[:, None]
            self.positions = _places_within_texts(mask)

    def zero(self, x: Tensor) -> Tensor:
        """Clear the padding of x [B, T, D], so that a convolution reads there what it reads beyond the row."""
        return x if self.keep is None else x.masked_fill(~self.keep.unsqueeze(-1), 0.0)

    def window(self, kernel: int) -> Tensor | None:
        """Which taps stay within the token's own text: [B, T, K], or None when there is one text per row."""
        if self._texts is None:
            return None
        if kernel not in self._windows:
            self._windows[kernel] = _neighbours(self._texts, kernel, beyond=-1) == self._texts.unsqueeze(-1)
        return self._windows[kernel]

    def reach(self, x: Tensor, kernel: int) -> Tensor:
        """Which taps of the tokens of x [B, T, D] read a real token of the same text: [B, T, K], the middle always."""
        keep = x.new_ones(x.shape[:2], dtype=torch.bool) if self.keep is None else self.keep
        reached = _neighbours(keep, kernel, beyond=False)
        window = self.window(kernel)
        reached = reached if window is None else reached & window
        middle = torch.arange(kernel, device=x.device) == kernel // 2
        return reached | middle


def _places_within_texts(texts: Tensor) -> Tensor:
    """Count from 0 within each run of equal numbers: [B, T]."""
    place = torch.arange(texts.shape[1], device=texts.device).expand_as(texts)
    changes = torch.ones_like(texts, dtype=torch.bool)
    changes[:, 1:] = texts[:, 1:] != texts[:, :-1]
    starts = place.masked_fill(~changes, 0).cummax(dim=1).values
    return place - starts


def _neighbours(marks: Tensor, kernel: int, beyond: int | bool) -> Tensor:
    """The marks in the window around each token: [B, T] -> [B, T, K], with ``beyond`` outside the row."""
    radius, tokens = kernel // 2, marks.shape[1]
    padded = torch.nn.functional.pad(marks, (radius, radius), value=beyond)
    return torch.stack([padded[:, tap : tap + tokens] for tap in range(kernel)], dim=-1)
