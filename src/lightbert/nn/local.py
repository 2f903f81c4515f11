"""Local attention, the composite paper's version of ConvBERT: half of the heads attend within a window."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.attention import attend, merge_heads, split_heads
from lightbert.nn.mask import Mask
from lightbert.nn.mixer import Mixer
from lightbert.nn.projections import Depthwise, project
from lightbert.nn.record import Record
from lightbert.ops.dynamic_conv import softmax_within_text, window_sum


class LocalAttention(Mixer):
    """Attention heads, then local heads whose scores within ±kernel//2 come from a kernel layer (Table 7).

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
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if n_heads % 2 or width % n_heads:
            raise InputError(f"n_heads ({n_heads}) must be even and divide the width, {width}")
        if indexed_by not in ("query", "key"):
            raise InputError(f"indexed_by must be 'query' or 'key', got {indexed_by!r}")
        half = width // 2
        self.width, self.value_width, self.n_heads = width, value_width, n_heads // 2
        self.out_width = width
        self.indexed_by, self.taps, self.dropout = indexed_by, kernel, dropout
        self.query = nn.Linear(width, half)
        self.key = nn.Linear(width, half)
        self.value = nn.Linear(value_width or width, width)
        self.depthwise = Depthwise(width, kernel, bias=True)
        self.pointwise = nn.Linear(width, half)
        self.kernel = nn.Linear(half, self.n_heads * kernel)

    def _kernel_of_neighbour(self, logits: Tensor) -> Tensor:
        """Take tap j from the kernel of the token that tap j reads: [B, T, H, K] -> [B, T, H, K]."""
        radius, tokens = self.taps // 2, logits.shape[1]
        padded = F.pad(logits, (0, 0, 0, 0, radius, radius))
        return torch.stack([padded[:, tap : tap + tokens, :, tap] for tap in range(self.taps)], dim=-1)

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        dropout = self.dropout if self.training else 0.0
        query, key = project(x, self.query, self.key)
        values, local_values = self.value(x if value is None else value).chunk(2, dim=-1)
        q, k, v = (split_heads(stream, self.n_heads) for stream in (query, key, values))
        attended = merge_heads(attend(q, k, v, mask, record, dropout=dropout))

        span = query * self.pointwise(self.depthwise(x, mask))
        logits = self.kernel(span).unflatten(-1, (self.n_heads, self.taps))  # [B, T, H, K]
        logits = logits if self.indexed_by == "query" else self._kernel_of_neighbour(logits)
        weights = softmax_within_text(logits, mask.convolution_texts)
        if record is not None and record.kernels is not None:
            record.kernels.append(weights)
        weights = torch.dropout(weights, dropout, train=dropout > 0).to(x.dtype)
        return torch.cat([attended, window_sum(local_values, weights)], dim=-1)
