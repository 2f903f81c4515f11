"""Mixed attention: self-attention heads and convolution heads in parallel (ConvBERT §3.3, Eq. 6)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.attention import attend, merge_heads, split_heads
from lightbert.nn.convolution import DynamicConvolution, SpanConvolution
from lightbert.nn.mask import Mask
from lightbert.nn.mixer import Mixer
from lightbert.nn.plain_layers import is_plain
from lightbert.nn.projections import apply_linear, can_fuse, project
from lightbert.nn.record import Record
from lightbert.ops.backend import on_gpu
from lightbert.ops.mixed_heads import mixed_heads


class MixedAttention(Mixer):
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
        self.width, self.value_width, self.n_heads = width, value_width, n_heads
        self.out_width = 2 * inner
        self.query = nn.Linear(width, inner)
        self.key = nn.Linear(width, inner)
        self.value = nn.Linear(value_width or width, inner)
        self.convolution = convolution
        self.dropout = dropout

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, 2a]."""
        if value is None and record is None and on_gpu(x):
            convolution = self._plain_convolution()
            if convolution is not None:
                return self._together(x, mask, convolution)
        # The convolution's values, if one matmul computes them together with the other streams.
        projected: list[Tensor] = []
        if value is None:
            value = x
            more = [self.convolution.value] if on_gpu(x) and isinstance(self.convolution, DynamicConvolution) else []
            query, key, values, *projected = project(x, self.query, self.key, self.value, *more)
        else:
            query, key = project(x, self.query, self.key)
            values = self.value(value)
        q, k, v = (split_heads(stream, self.n_heads) for stream in (query, key, values))
        attended = attend(q, k, v, mask, record, dropout=self.dropout if self.training else 0.0)
        convolved = self.convolution(x, query, value, mask, record, *projected)
        return torch.cat([merge_heads(attended), convolved], dim=-1)

    def _plain_convolution(self) -> SpanConvolution | None:
        """The convolution, if one op computes what its layers and those of attention compute."""
        convolution = self.convolution
        if not is_plain(convolution, SpanConvolution):
            return None
        layers = (self.query, self.key, self.value, convolution.value, convolution.kernel, convolution.pointwise)
        return convolution if can_fuse(*layers) else None

    def _together(self, x: Tensor, mask: Mask, convolution: SpanConvolution) -> Tensor:
        """Both kinds of heads by one op."""
        # Before the projections: the convolution waits for memory, and finds its input in the cache.
        span_key = F.linear(convolution.depthwise(x, mask), convolution.pointwise.weight)
        layers = (self.query, self.key, self.value, convolution.value)
        bias = torch.cat([layer.bias for layer in layers])
        return mixed_heads(
            apply_linear(x, torch.cat([layer.weight for layer in layers]), bias.detach()),
            bias,
            span_key,
            convolution.pointwise.bias,
            *convolution.padded_kernel(),
            mask.attention_texts,
            mask.convolution_texts,
            n_heads=self.n_heads,
            taps=convolution.taps,
            dropout=self.dropout if self.training else 0.0,
        )


def reduced_heads(n_heads: int, head_ratio: int) -> int:
    """Return the number of attention heads (and of convolution heads) after reduction by γ (ConvBERT §3.3)."""
    return max(1, n_heads // head_ratio)
