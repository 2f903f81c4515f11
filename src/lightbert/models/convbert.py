"""ConvBERT: span-based dynamic convolutions replace half of the attention heads."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from lightbert.config import Depth, Dimension, NonNegative, OptionalDimension, PartialShare
from lightbert.errors import InputError
from lightbert.models.bert import post_norm_encoder
from lightbert.nn.attention import Mixer, SelfAttention
from lightbert.nn.convolution import DynamicConvolution, SeparableConvolution, SpanConvolution
from lightbert.nn.encoder import Encoder
from lightbert.nn.mixed import MixedAttention, reduced_heads

Convolution = Literal["span", "dynamic", "conventional", "none"]


def mixed_attention(
    width: int,
    n_heads: int,
    *,
    head_ratio: int,
    kernel: int,
    convolution: Convolution,
    head_width: int | None = None,
    value_width: int | None = None,
    dropout: PartialShare = 0.0,
) -> Mixer:
    """Build the mixer of one block. ``n_heads`` is the unreduced number; "none" gives bottleneck attention alone."""
    if head_width is None:
        if width % n_heads:
            raise InputError(f"n_heads ({n_heads}) must divide the width, {width}")
        head_width = width // n_heads
    heads = reduced_heads(n_heads, head_ratio)
    inner = heads * head_width
    parallel: nn.Module
    match convolution:
        case "none":
            return SelfAttention(width, heads, head_width=head_width, value_width=value_width, dropout=dropout)
        case "span":
            parallel = SpanConvolution(width, inner, heads, kernel, value_width)
        case "dynamic":
            parallel = DynamicConvolution(width, inner, heads, kernel, value_width)
        case "conventional":
            parallel = SeparableConvolution(value_width or width, inner, kernel)
    return MixedAttention(
        width, heads, head_width=head_width, convolution=parallel, value_width=value_width, dropout=dropout
    )


@dataclass(frozen=True)
class ConvBert:
    """ConvBERT and its ablations. ``n_heads`` is the number before reduction by γ = ``head_ratio``, as released."""

    vocab: Dimension = 30522
    positions: OptionalDimension = 512
    segments: Dimension = 2
    narrow: Dimension = 768
    width: Dimension = 768
    depth: Depth = 12
    n_heads: Dimension = 12
    inner: Dimension = 3072
    head_ratio: Dimension = 2
    kernel: Dimension = 9
    groups: Dimension = 1
    convolution: Convolution = "span"
    padding: Literal["masked", "released"] = "masked"
    activation: str = "gelu"
    dropout: PartialShare = 0.1
    attention_dropout: PartialShare = 0.1
    eps: NonNegative = 1e-12

    def build(self) -> Encoder:
        """Construct the modules."""
        return post_norm_encoder(
            self,
            lambda: mixed_attention(
                self.width,
                self.n_heads,
                head_ratio=self.head_ratio,
                kernel=self.kernel,
                convolution=self.convolution,
                dropout=self.attention_dropout,
            ),
            groups=self.groups,
            released_padding=self.padding == "released",
        )
