"""The convolution heads of mixed attention: span-based dynamic, dynamic and conventional (ConvBERT Table 2).

Each is called with the token stream, the queries it may share with the attention heads, and the stream that the values
are read from, and gives ``out_width`` channels, as many as the attention heads beside it.
"""

import torch
from torch import Tensor, nn

from lightbert.nn.distributions import Initial, TruncatedNormal
from lightbert.nn.mask import Mask
from lightbert.nn.projections import Depthwise, check_odd
from lightbert.nn.record import Record
from lightbert.ops.dynamic_conv import dynamic_conv


class DynamicConvolution(nn.Module):
    """Every token's query alone generates its kernels (the "dynamic" row of ConvBERT Table 2).

    Deviation: the paper's Eq. 5 shares the values with attention; the released code and the printed parameter counts
    have a projection of their own, so that is what we build.
    """

    def __init__(self, width: int, inner: int, n_heads: int, kernel: int, value_width: int | None = None) -> None:
        super().__init__()
        self.n_heads, self.taps, self.out_width = n_heads, check_odd(kernel), inner
        self.kernel = nn.Linear(inner, n_heads * kernel)
        self.value = nn.Linear(value_width or width, inner)

    def span(self, x: Tensor, query: Tensor, mask: Mask) -> Tensor:
        """What the kernels are generated from: [B, T, a]."""
        return query

    def forward(self, x: Tensor, query: Tensor, value: Tensor, mask: Mask, record: Record | None = None) -> Tensor:
        """Stream x [B, T, D], query [B, T, a], value [B, T, value width] -> [B, T, a]."""
        logits = self.kernel(self.span(x, query, mask)).unflatten(-1, (self.n_heads, self.taps))  # [B, T, H, K]
        if record is not None and record.kernels is not None:
            record.kernels.append(torch.softmax(logits.float(), dim=-1))
        return dynamic_conv(self.value(value), logits, mask.convolution_texts)


class SpanConvolution(DynamicConvolution):
    """Kernels from the product of the query and a key that has seen the token's span (ConvBERT Eq. 4 and 5).

    Deviation: the kernel layer reads all heads jointly, as released, where Eq. 4 prints one map per head.
    """

    def __init__(self, width: int, inner: int, n_heads: int, kernel: int, value_width: int | None = None) -> None:
        super().__init__(width, inner, n_heads, kernel, value_width)
        self.depthwise = Depthwise(width, kernel, bias=False)
        self.pointwise = nn.Linear(width, inner)

    def initial_weights(self) -> Initial:
        """The released separable convolution starts its depthwise part at a standard deviation of 1/K."""
        return {"depthwise.weight": TruncatedNormal(1 / self.taps)}

    def span(self, x: Tensor, query: Tensor, mask: Mask) -> Tensor:
        """The query times the span-aware key: [B, T, a]."""
        key: Tensor = self.pointwise(self.depthwise(x, mask))
        return query * key


class SeparableConvolution(nn.Module):
    """A conventional depthwise-separable convolution beside attention (the "conventional" row of ConvBERT Table 2)."""

    def __init__(self, width: int, inner: int, kernel: int) -> None:
        super().__init__()
        self.out_width = inner
        self.depthwise = Depthwise(width, kernel, bias=False)
        self.pointwise = nn.Linear(width, inner)

    def initial_weights(self) -> Initial:
        """As the span-aware key: a standard deviation of 1/K."""
        return {"depthwise.weight": TruncatedNormal(1 / self.depthwise.weight.shape[1])}

    def forward(self, x: Tensor, query: Tensor, value: Tensor, mask: Mask, record: Record | None = None) -> Tensor:
        """Values [B, T, D] -> [B, T, a]; the queries are not used."""
        mixed: Tensor = self.pointwise(self.depthwise(value, mask))
        return mixed
