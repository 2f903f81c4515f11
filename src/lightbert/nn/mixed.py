"""Mixed attention: self-attention heads and convolution heads in parallel (ConvBERT §3.3, Eq. 6)."""

import torch
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.attention import Attention
from lightbert.nn.mask import Mask
from lightbert.nn.record import Record


class MixedAttention(Attention):
    """Attention heads, concatenated with as many channels from ``convolution``, which shares the queries.

    ``n_heads`` is the reduced number of heads and ``head_width`` the width of an unreduced head, so that
    n_heads · head_width is below ``width``. The output has twice that width for every head ratio, as in the released
    TensorFlow code.
    """

    def __init__(
        self,
        width: int,
        n_heads: int,
        *,
        head_width: int,
        convolution: nn.Module,
        value_width: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        inner = n_heads * head_width
        if convolution.out_width != inner:
            raise InputError(
                f"the convolution's out_width ({convolution.out_width}) must equal n_heads · head_width ({inner})"
            )
        self.width, self.value_width, self.n_heads, self.dropout = width, value_width, n_heads, dropout
        self.out_width = 2 * inner
        self.query = nn.Linear(width, inner)
        self.key = nn.Linear(width, inner)
        self.value = nn.Linear(value_width or width, inner)
        self.convolution = convolution

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, 2a]."""
        value = x if value is None else value
        query = self.query(x)
        attended = self.attend(query, self.key(x), self.value(value), mask, record)
        return torch.cat([attended, self.convolution(x, query, value, mask, record)], dim=-1)


def reduced_heads(n_heads: int, head_ratio: int) -> int:
    """Return the number of attention heads (and of convolution heads) after reduction by γ (ConvBERT §3.3)."""
    return max(1, n_heads // head_ratio)
