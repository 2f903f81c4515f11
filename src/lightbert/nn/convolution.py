"""Convolutions over tokens: depthwise, and the heads beside attention (ConvBERT Table 2).

The heads are span-based dynamic, dynamic with or without a gate, or conventional. A kernel of K taps reads the tokens
from i - ⌊K/2⌋ to i + ⌈K/2⌉ - 1 around token i, for even K too (ConvBERT Eq. 2).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.nn.feedforward import linear
from lightbert.nn.init import Initial, TruncatedNormal, Uniform
from lightbert.nn.mask import Mask
from lightbert.nn.record import Record
from lightbert.ops.depthwise import depthwise
from lightbert.ops.dynamic_conv import dynamic_conv


class Depthwise(nn.Module):
    """A convolution over tokens with one fixed kernel per channel; padding and other texts read as zero."""

    def __init__(self, width: int, kernel: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, kernel))
        self.bias = nn.Parameter(torch.empty(width)) if bias else None

    def initial_weights(self) -> Initial:
        """PyTorch's default for a convolution of this size, as in the code of Chang et al."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        return {name: Uniform(bound) for name, _ in self.named_parameters()}

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        return depthwise(x, self.weight, self.bias, mask.convolution_texts)


class ConvolutionHeads(nn.Module):
    """The base class of the heads beside attention.

    ``forward(x, query, value, mask, record=None, values=None)`` maps the stream x [B, T, D], the queries [B, T, a] and
    the stream of the values [B, T, value width] to [B, T, a]. ``values`` [B, T, a] are projected already: those of
    attention, if the heads share them, or computed together with other projections.
    """

    out_width: int
    shares_values: bool = False


class DynamicConvolution(ConvolutionHeads):
    """Dynamic convolution: each token's kernels are generated from its query (the "dynamic" row of ConvBERT Table 2).

    per_head: one map to kernels per head, W_f of Eq. 4; by default one layer reads all heads, as released.
    shares_values: use the values of attention, V of Eq. 5 and 6; by default the heads have a value projection, as in
    the released code and the paper's parameter counts.
    """

    def __init__(
        self,
        width: int,
        inner: int,
        n_heads: int,
        kernel: int,
        value_width: int | None = None,
        *,
        per_head: bool = False,
        shares_values: bool = False,
    ) -> None:
        super().__init__()
        self.n_heads, self.taps, self.out_width, self.shares_values = n_heads, kernel, inner, shares_values
        self.kernel = linear(inner, n_heads * kernel, n_heads if per_head else 1)
        self.value = None if shares_values else nn.Linear(value_width or width, inner)

    def span(self, x: Tensor, query: Tensor, mask: Mask) -> Tensor:
        """Return the input of the kernel layer: [B, T, a]."""
        return query

    def logits(self, span: Tensor) -> Tensor:
        """Apply the kernel layer: [B, T, a] -> [B, T, H, K]."""
        logits: Tensor = self.kernel(span).unflatten(-1, (self.n_heads, self.taps))
        return logits

    def convolve(self, values: Tensor, logits: Tensor, mask: Mask, record: Record | None = None) -> Tensor:
        """Weight the window of each token with the softmax of its logits: [B, T, a] and [B, T, H, K] -> [B, T, a]."""
        if record is not None and record.kernels is not None:
            record.kernels.append(torch.softmax(logits[..., : self.taps].float(), dim=-1))
        return dynamic_conv(values, logits, mask.convolution_texts, self.taps)

    def forward(
        self,
        x: Tensor,
        query: Tensor,
        value: Tensor,
        mask: Mask,
        record: Record | None = None,
        values: Tensor | None = None,
    ) -> Tensor:
        """As of `ConvolutionHeads`."""
        logits = self.logits(self.span(x, query, mask))
        if values is None:
            assert self.value is not None
            values = self.value(value)
        return self.convolve(values, logits, mask, record)

    def own_flops(self, tokens: int) -> int:
        """FLOPs of the convolution itself."""
        return 2 * tokens * self.out_width * self.taps


class SpanConvolution(DynamicConvolution):
    """Span-based dynamic convolution: kernels from the query times a span-aware key (ConvBERT Eq. 4 and 5)."""

    def __init__(
        self, width: int, inner: int, n_heads: int, kernel: int, value_width: int | None = None, **options: bool
    ) -> None:
        super().__init__(width, inner, n_heads, kernel, value_width, **options)
        self.depthwise = Depthwise(width, kernel, bias=False)
        self.pointwise = nn.Linear(width, inner)

    def initial_weights(self) -> Initial:
        """A standard deviation of 1/K for the depthwise weights, as released."""
        return {"depthwise.weight": TruncatedNormal(1 / self.taps)}

    def span(self, x: Tensor, query: Tensor, mask: Mask) -> Tensor:
        """Return the query times the span-aware key: [B, T, a]."""
        key: Tensor = self.pointwise(self.depthwise(x, mask))
        return query * key


class GatedConvolution(DynamicConvolution):
    """Dynamic convolution after a linear projection and a gated linear unit (ConvBERT §3.1, Fig. 3b).

    Kernels and values are both generated from the gated tokens, without the queries of attention.
    """

    def __init__(self, width: int, inner: int, n_heads: int, kernel: int, *, per_head: bool = False) -> None:
        # It has values of its own, but no layer for them alone.
        super().__init__(width, inner, n_heads, kernel, per_head=per_head, shares_values=True)
        self.shares_values = False
        self.gate = nn.Linear(width, 2 * inner)

    def forward(
        self, x: Tensor, query: Tensor, value: Tensor, mask: Mask, record: Record | None = None, *_: object
    ) -> Tensor:
        """As of `ConvolutionHeads`; only x is read."""
        gated = F.glu(self.gate(x), dim=-1)
        return self.convolve(gated, self.logits(gated), mask, record)


class SeparableConvolution(ConvolutionHeads):
    """A depthwise-separable convolution (the "conventional" row of ConvBERT Table 2)."""

    def __init__(self, width: int, inner: int, kernel: int) -> None:
        super().__init__()
        self.out_width = inner
        self.depthwise = Depthwise(width, kernel, bias=False)
        self.pointwise = nn.Linear(width, inner)

    def initial_weights(self) -> Initial:
        """A standard deviation of 1/K for the depthwise weights, as in `SpanConvolution`."""
        return {"depthwise.weight": TruncatedNormal(1 / self.depthwise.weight.shape[1])}

    def forward(self, x: Tensor, query: Tensor, value: Tensor, mask: Mask, *_: object) -> Tensor:
        """As of `ConvolutionHeads`; only the stream of the values is read."""
        mixed: Tensor = self.pointwise(self.depthwise(value, mask))
        return mixed
