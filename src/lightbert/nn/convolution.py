"""The convolution heads of mixed attention: span-based dynamic, dynamic and conventional (ConvBERT Table 2).

Each takes the token stream, the queries of the attention heads and the stream for the values, and returns ``out_width``
channels, as many as the attention heads.
"""

from collections.abc import Sequence
from typing import NamedTuple

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


class Padding(NamedTuple):
    """Rows of zeros after each of several blocks of rows."""

    blocks: int = 1
    filler: int = 0
    """Rows of zeros per block."""

    def split(self, rows: Tensor) -> Sequence[Tensor]:
        """The blocks of unpadded rows; one if there is nothing to pad."""
        return rows.unflatten(0, (self.blocks, -1)).unbind() if self.filler else [rows]

    def filled(self, rows: Tensor) -> Sequence[Tensor]:
        """The blocks of padded rows, without their padding."""
        return [block[: -self.filler] for block in self.split(rows)] if self.filler else [rows]


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

    @property
    def padding(self) -> Padding:
        """How the outputs of the kernel layer are padded on a GPU, because odd matmuls are slow there."""
        return Padding(self.n_heads, -self.taps % PADDING)

    @property
    def can_pad(self) -> bool:
        """Whether the kernel layer is plain, so that padded parameters can take the place of its own."""
        return is_plain(self.kernel, nn.Linear)

    def _logits(self, span: Tensor) -> Tensor:
        """Apply the kernel layer: [B, T, a] -> [B, T, H, K or more]."""
        if not (on_gpu(span) and self.can_pad):
            unpadded: Tensor = self.kernel(span).unflatten(-1, (self.n_heads, self.taps))
            return unpadded
        logits: Tensor = F.linear(span, *self.padded_kernel()).unflatten(-1, (self.n_heads, -1))
        return logits

    def padded_kernel(self) -> tuple[Tensor, Tensor]:
        """The weight and the bias of the kernel layer with padded outputs."""
        heads = (self.n_heads, self.taps)
        weight: Tensor = self.kernel.weight
        bias: Tensor = self.kernel.bias
        # The copies of half precision in training are padded already.
        if len(weight) == self.n_heads * self.taps:
            weight = F.pad(weight.unflatten(0, heads), (0, 0, 0, self.padding.filler)).flatten(0, 1)
            bias = F.pad(bias.unflatten(0, heads), (0, self.padding.filler)).flatten()
        return weight, bias


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
        return query * self.span_key(x, mask)

    def span_key(self, x: Tensor, mask: Mask) -> Tensor:
        """Return the span-aware key: [B, T, a]."""
        key: Tensor = self.pointwise(self.depthwise(x, mask))
        return key


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
