"""The mask of a batch, prepared once for attention, convolutions and positions."""

import torch
from torch import Tensor

from lightbert.errors import InputError


class Mask:
    """A boolean mask [B, T] (True = real token), or integers that number the texts packed into a row (0 = padding).

    Attention uses ``attention_texts``, convolutions and trigrams use ``convolution_texts``, embeddings use
    ``positions``. All are [B, T], or None if nothing is padded, which costs nothing.
    With ``released`` padding only attention is masked, as in the released ConvBERT and MobileBERT: their
    convolutions and trigrams read the padding, and positions count it.
    """

    def __init__(self, mask: Tensor | None, *, released: bool = False) -> None:
        self.attention_texts: Tensor | None = None
        self.convolution_texts: Tensor | None = None
        self.positions: Tensor | None = None
        if mask is None:
            return
        if mask.dtype is torch.bool:
            # A row that is all padding attends to all of its tokens, which keeps its (unused) states finite.
            self.attention_texts = mask | ~mask.any(dim=1, keepdim=True)
            if not released:
                self.convolution_texts = mask
                self.positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        elif released:
            raise InputError(
                f"the mask must be boolean with padding = 'released', got {mask.dtype}; packed texts require 'masked'"
            )
        else:
            self.attention_texts = self.convolution_texts = mask
            self.positions = _positions_within_texts(mask)


def _positions_within_texts(texts: Tensor) -> Tensor:
    """Count from 0 within each run of equal numbers: [B, T]."""
    position = torch.arange(texts.shape[1], device=texts.device).expand_as(texts)
    changes = torch.ones_like(texts, dtype=torch.bool)
    changes[:, 1:] = texts[:, 1:] != texts[:, :-1]
    starts = position.masked_fill(~changes, 0).cummax(dim=1).values
    return position - starts
