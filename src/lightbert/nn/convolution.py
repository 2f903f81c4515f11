"""The convolution heads of mixed attention: span-based dynamic, dynamic and conventional (ConvBERT Table 2).

Each takes the token stream, the queries of the attention heads and the stream for the values, and returns ``out_width``
channels, as many as the attention heads.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.nn.distributions import Initial, TruncatedNormal
from lightbert.nn.mask import Mask
from lightbert.nn.plain_layers import is_plain
from lightbert.nn.projections import Depthwise, check_odd
from lightbert.nn.record import Record
from lightbert.ops.backend import on_gpu
from lightbert.ops.dynamic_conv import PADDING, dynamic_conv


class DynamicConvolution(nn.Module):
    """Dynamic convolution: each token's kernels are generated from its query (the "dynamic" row of ConvBERT Table 2).

    Deviation: the paper's Eq. 5 shares the values with attention; we use a separate value projection, as the released
    code and the paper's parameter counts do.
    """

    def __init__(self, width: int, inner: int, n_heads: int, kernel: int, value_width: int | None = None) -> None:
        super().__init__()
        self.n_heads, self.taps, self.out_width = n_heads, check_odd(kernel), inner
        self.kernel = nn.Linear(inner, n_heads * kernel)
        self.value = nn.Linear(value_width or width, inner)

    def span(self, x: Tensor, query: Tensor, mask: Mask) -> Tensor:
        """Return the input of the kernel layer: [B, T, a]."""
        return query

    def forward(
        self,
        x: Tensor,
        query: Tensor,
        value: Tensor,
        mask: Mask,
        record: Record | None = None,
        projected: Tensor | None = None,
    ) -> Tensor:
        """Stream x [B, T, D], query [B, T, a], value [B, T, value width] -> [B, T, a].

        projected [B, T, a]: the result of the layer ``value``, if it is computed together with other projections.
        """
        logits = self._logits(self.span(x, query, mask))  # [B, T, H, K or more]
        if record is not None and record.kernels is not None:
            record.kernels.append(torch.softmax(logits[..., : self.taps].float(), dim=-1))
        values = self.value(value) if projected is None else projected
        return dynamic_conv(values, logits, mask.convolution_texts, self.taps)

    def _logits(self, span: Tensor) -> Tensor:
        """Apply the kernel layer; on a GPU with each head's outputs padded, because odd matmuls are slow there."""
        heads = (self.n_heads, self.taps)
        if not (on_gpu(span) and is_plain(self.kernel, nn.Linear)):
            unpadded: Tensor = self.kernel(span).unflatten(-1, heads)
            return unpadded
        padding = -self.taps % PADDING
        weight = F.pad(self.kernel.weight.unflatten(0, heads), (0, 0, 0, padding))
        bias = F.pad(self.kernel.bias.unflatten(0, heads), (0, padding))
        logits: Tensor = F.linear(span, weight.flatten(0, 1), bias.flatten()).unflatten(-1, (self.n_heads, -1))
        return logits


class SpanConvolution(DynamicConvolution):
    """Span-based dynamic convolution: kernels from the query times a span-aware key (ConvBERT Eq. 4 and 5).

    Deviation: the kernel layer reads all heads jointly, as released; Eq. 4 has one map per head.
    """

    def __init__(self, width: int, inner: int, n_heads: int, kernel: int, value_width: int | None = None) -> None:
        super().__init__(width, inner, n_heads, kernel, value_width)
        self.depthwise = Depthwise(width, kernel, bias=False)
        self.pointwise = nn.Linear(width, inner)

    def initial_weights(self) -> Initial:
        """A standard deviation of 1/K for the depthwise weights, as released."""
        return {"depthwise.weight": TruncatedNormal(1 / self.taps)}

    def span(self, x: Tensor, query: Tensor, mask: Mask) -> Tensor:
        """Return the query times the span-aware key: [B, T, a]."""
        key: Tensor = self.pointwise(self.depthwise(x, mask))
        return query * key


class SeparableConvolution(nn.Module):
    """A depthwise-separable convolution (the "conventional" row of ConvBERT Table 2)."""

    def __init__(self, width: int, inner: int, kernel: int) -> None:
        super().__init__()
        self.out_width = inner
        self.depthwise = Depthwise(width, kernel, bias=False)
        self.pointwise = nn.Linear(width, inner)

    def initial_weights(self) -> Initial:
        """A standard deviation of 1/K for the depthwise weights, as in `SpanConvolution`."""
        return {"depthwise.weight": TruncatedNormal(1 / self.depthwise.weight.shape[1])}

    def forward(self, x: Tensor, query: Tensor, value: Tensor, mask: Mask, record: Record | None = None) -> Tensor:
        """Values [B, T, D] -> [B, T, a]; the queries are not used."""
        mixed: Tensor = self.pointwise(self.depthwise(value, mask))
        return mixed
