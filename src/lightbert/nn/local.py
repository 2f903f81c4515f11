"""Chang et al.'s version of ConvBERT: local heads beside the attention heads."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.attention import NO_TERMS, Attention, Terms
from lightbert.nn.convolution import Depthwise
from lightbert.nn.mask import Mask
from lightbert.nn.record import Record
from lightbert.ops.dynamic_conv import softmax_within_text, window_sum


class LocalAttention(Attention):
    """Attention heads, then local heads whose scores within ±kernel//2 come from a kernel layer (Chang et al. Table 7).

    Unlike in mixed attention, the local heads use the second half of one full-width value projection, take the softmax
    over the taps that read a real token only, and apply dropout to their weights.
    Deviation: with ``indexed_by`` "query" a token's own kernel weights its neighbours, as in ConvBERT; the released
    comparison model uses the kernel generated at the neighbour ("key"), which is a different model.
    """

    def __init__(
        self,
        width: int,
        n_heads: int,
        *,
        kernel: int,
        indexed_by: str = "query",
        value_width: int | None = None,
        terms: Terms = NO_TERMS,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if n_heads % 2 or width % n_heads:
            raise InputError(f"n_heads ({n_heads}) must be even and divide the width, {width}")
        if indexed_by not in ("query", "key"):
            raise InputError(f"indexed_by must be 'query' or 'key', got {indexed_by!r}")
        if kernel % 2 == 0:
            raise InputError(f"the kernel size of local attention must be odd, got {kernel}; use {kernel + 1}")
        if terms.depthwise or terms.convolved:
            raise InputError("local attention can't be combined with depthwise or convolved, which change its values")
        half = width // 2
        self.width, self.value_width, self.out_width = width, value_width, width
        self.indexed_by, self.taps = indexed_by, kernel
        self.add_biases(n_heads // 2, width // n_heads, terms, dropout)
        self.query = nn.Linear(width, half)
        self.key = nn.Linear(width, half)
        self.value = nn.Linear(value_width or width, width)
        self.depthwise = Depthwise(width, kernel, bias=True)
        self.pointwise = nn.Linear(width, half)
        self.kernel = nn.Linear(half, self.n_heads * kernel)

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        return self.mix(x, self.query(x), self.key(x), x if value is None else value, mask, record)

    def mix(
        self, x: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Mask, record: Record | None = None
    ) -> Tensor:
        """Both kinds of heads, from the stream, queries and keys, and the stream of the values."""
        values, local_values = self.value(value).chunk(2, dim=-1)
        attended = self.attend(query, key, values, mask, record)
        span = query * self.pointwise(self.depthwise(x, mask))
        logits = self.kernel(span).unflatten(-1, (self.n_heads, self.taps))  # [B, T, H, K]
        logits = logits if self.indexed_by == "query" else self._kernel_of_neighbour(logits)
        weights = softmax_within_text(logits, mask.convolution_texts)
        if record is not None and record.kernels is not None:
            record.kernels.append(weights)
        dropout = self.dropout if self.training else 0.0
        weights = torch.dropout(weights, dropout, train=dropout > 0).to(x.dtype)
        return torch.cat([attended, window_sum(local_values, weights)], dim=-1)

    def _kernel_of_neighbour(self, logits: Tensor) -> Tensor:
        """Take tap j from the kernel of the token that tap j reads: [B, T, H, K] -> [B, T, H, K]."""
        radius, tokens = self.taps // 2, logits.shape[1]
        padded = F.pad(logits, (0, 0, 0, 0, radius, radius))
        return torch.stack([padded[:, tap : tap + tokens, :, tap] for tap in range(self.taps)], dim=-1)

    def own_flops(self, tokens: int) -> int:
        """FLOPs of both kinds of heads."""
        return super().own_flops(tokens) + 2 * tokens * self.out_width // 2 * self.taps
