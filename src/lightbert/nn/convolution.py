"""Convolutions over tokens: depthwise, and the convolution heads of mixed attention (ConvBERT Table 2).

The heads are span-based dynamic, dynamic or conventional. Each takes the token stream, the queries of the attention
heads and the stream for the values, and returns ``out_width`` channels, as many as the attention heads.
"""

import math

import torch
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.init import Initial, TruncatedNormal, Uniform
from lightbert.nn.mask import Mask
from lightbert.nn.record import Record
from lightbert.ops.depthwise import depthwise
from lightbert.ops.dynamic_conv import dynamic_conv


def check_odd(kernel: int) -> int:
    """Check that a kernel size is odd, so that the kernel has a middle tap, and return it."""
    if kernel % 2 == 0:
        raise InputError(f"the kernel size must be odd, got {kernel}; use {kernel + 1}")
    return kernel


class Depthwise(nn.Module):
    """A convolution over tokens with one fixed kernel per channel; padding and other texts read as zero."""

    def __init__(self, width: int, kernel: int, *, bias: bool) -> None:
        super().__init__()
        kernel = check_odd(kernel)
        self.weight = nn.Parameter(torch.empty(width, kernel))
        self.bias = nn.Parameter(torch.empty(width)) if bias else None

    def initial_weights(self) -> Initial:
        """PyTorch's default for a convolution of this size, as in the code of Chang et al."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        return {name: Uniform(bound) for name, _ in self.named_parameters()}

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        return depthwise(x, self.weight, self.bias, mask.convolution_texts)


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

    def logits(self, span: Tensor) -> Tensor:
        """Apply the kernel layer: [B, T, a] -> [B, T, H, K]."""
        logits: Tensor = self.kernel(span).unflatten(-1, (self.n_heads, self.taps))
        return logits

    def convolve(self, values: Tensor, logits: Tensor, mask: Mask, record: Record | None = None) -> Tensor:
        """Weight the window of each token with the softmax of its logits: [B, T, a] and [B, T, H, K] -> [B, T, a]."""
        if record is not None and record.kernels is not None:
            record.kernels.append(torch.softmax(logits[..., : self.taps].float(), dim=-1))
        return dynamic_conv(values, logits, mask.convolution_texts, self.taps)

    def forward(self, x: Tensor, query: Tensor, value: Tensor, mask: Mask, record: Record | None = None) -> Tensor:
        """Stream x [B, T, D], query [B, T, a], value [B, T, value width] -> [B, T, a]."""
        logits = self.logits(self.span(x, query, mask))
        return self.convolve(self.value(value), logits, mask, record)


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
