"""The interface of mixers, and self-attention with everything that the papers add to it."""

import math
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.convolution import ConvolutionHeads, Depthwise
from lightbert.nn.init import Constant, Initial, Uniform
from lightbert.nn.mask import Mask
from lightbert.nn.record import Record
from lightbert.ops.relative_attention import check_outside, relative_attention, relative_scores


class Mixer(nn.Module):
    """The part of a block that combines tokens: maps ``width`` channels to ``out_width``.

    The output projection and the residual belong to the block. A mixer built with a ``value_width`` must be called
    with a second stream ``value`` of that width.
    """

    width: int
    value_width: int | None
    out_width: int

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """X [B, T, D] -> [B, T, out_width]."""
        raise NotImplementedError

    def own_flops(self, tokens: int) -> int:
        """FLOPs for a text of this many tokens, without those of the layers inside."""
        raise NotImplementedError


@dataclass(frozen=True)
class Terms:
    """What composite attention adds to self-attention (Chang et al. 2021); by default nothing.

    The scores add, for each offset in ±radius, any of three convolution weights (Eq. 6): ``fixed``, one learned weight
    per head and offset; ``query_dynamic`` and ``key_dynamic``, generated from the query or the key by one map per layer
    that all heads share. ``outside`` sets the weight of offsets beyond the radius: the outermost weight ("clamp", as
    released) or zero ("zero", as in the paper). ``depthwise`` adds a depthwise convolution of the values to the result
    (Eq. 7); ``convolved`` lists the projections, out of "qkv", that convolve first in half of their heads.
    """

    radius: int = 8
    fixed: bool = False
    query_dynamic: bool = False
    key_dynamic: bool = False
    outside: str = "clamp"
    depthwise: bool = False
    convolved: str = ""

    @property
    def offsets(self) -> int:
        """The number of offsets within the radius, which is also the size of the depthwise kernels."""
        return 2 * self.radius + 1


NO_TERMS = Terms()


class Attention(Mixer):
    """The base class of mixers with attention heads: H heads of E channels, with biases for relative positions."""

    n_heads: int
    head_width: int
    dropout: float
    offsets: int
    outside: str

    def add_biases(self, n_heads: int, head_width: int, terms: Terms, dropout: float) -> None:
        """Create the parameters of the terms of the scores."""
        check_outside(terms.outside)
        self.n_heads, self.head_width, self.dropout = n_heads, head_width, dropout
        self.offsets, self.outside = terms.offsets, terms.outside
        self.fixed = nn.Parameter(torch.empty(n_heads, self.offsets)) if terms.fixed else None
        self.query_dynamic = nn.Parameter(torch.empty(head_width, self.offsets)) if terms.query_dynamic else None
        self.key_dynamic = nn.Parameter(torch.empty(head_width, self.offsets)) if terms.key_dynamic else None

    def initial_weights(self) -> Initial:
        """Zeros for the fixed weights, uniform in ±1/√(number of offsets) for the dynamic maps, as released."""
        dynamic = Uniform(1 / math.sqrt(self.offsets))
        return {"fixed": Constant(0.0), "query_dynamic": dynamic, "key_dynamic": dynamic}

    @property
    def has_biases(self) -> bool:
        """Whether the scores have any term besides the content."""
        return not (self.fixed is self.query_dynamic is self.key_dynamic is None)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, record: Record | None = None) -> Tensor:
        """Attend with all heads, with the biases of this mixer: three streams [B, T, H·E] -> [B, T, H·E]."""
        q, k, v = (split_heads(stream, self.n_heads) for stream in (query, key, value))
        by_query, by_key = self.biases(q, k)
        biases = {"by_query": by_query, "by_key": by_key}
        dropout = self.dropout if self.training else 0.0
        return merge_heads(attend(q, k, v, mask, record, **biases, outside=self.outside, dropout=dropout))

    def biases(self, query: Tensor, key: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """What the scores add for each offset, by query and by key: [B, H, T, E] -> [B or 1, H, T or 1, 2R+1]."""
        by_query = self.dynamic_weights(query, self.query_dynamic)
        if self.fixed is not None:
            fixed = self.fixed[None, :, None, :]
            by_query = fixed if by_query is None else by_query + fixed
        return by_query, self.dynamic_weights(key, self.key_dynamic)

    def dynamic_weights(self, heads: Tensor, dynamic: Tensor | None) -> Tensor | None:
        """Generate one weight per offset from queries or keys: [B, H, T, E] -> [B, H, T, 2R+1]."""
        if dynamic is None:
            return None
        # As the projections are: a matmul of [B, H, T, E] would copy the heads.
        token_major = heads.transpose(1, 2) @ dynamic.to(heads.dtype)
        weights: Tensor = token_major.transpose(1, 2) * heads.shape[-1] ** -0.5
        return weights

    def own_flops(self, tokens: int) -> int:
        """FLOPs of scores, weighted sums and dynamic maps."""
        maps = [dynamic for dynamic in (self.query_dynamic, self.key_dynamic) if dynamic is not None]
        generated = sum(2 * tokens * self.n_heads * dynamic.numel() for dynamic in maps)
        return 4 * tokens * tokens * self.n_heads * self.head_width + generated


class SelfAttention(Attention):
    """Multi-head self-attention without the output projection, which belongs to the block; the mixer of all papers.

    With fewer heads of the same width it is bottleneck attention (ConvBERT §3.3), with wider heads the inverted
    bottleneck of IB-BERT. With ``value_width`` the values come from a second stream, as in MobileBERT. With ``terms``
    it is composite attention. With a ``convolution``, which shares its queries, it is mixed attention (ConvBERT Eq. 6):
    the channels of the convolution heads follow those of the attention heads.
    """

    def __init__(
        self,
        width: int,
        n_heads: int,
        *,
        head_width: int | None = None,
        value_width: int | None = None,
        terms: Terms = NO_TERMS,
        convolution: ConvolutionHeads | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        convolved = terms.convolved
        if set(convolved) - set("qkv"):
            raise InputError(f"convolved must be a combination of 'q', 'k' and 'v', got {convolved!r}")
        if convolved and n_heads % 2:
            raise InputError(f"n_heads must be even with convolved = {convolved!r}, got {n_heads}")
        head_width = head_width_of(width, n_heads, head_width)
        inner = n_heads * head_width
        if convolution is not None and convolution.out_width != inner:
            raise InputError(
                f"the convolution's out_width ({convolution.out_width}) must equal n_heads · head_width ({inner})"
            )
        self.width, self.value_width = width, value_width
        self.out_width = inner if convolution is None else inner + convolution.out_width

        def projection(name: str, inputs: int) -> nn.Linear | ConvolutionalProjection:
            if name in convolved:
                return ConvolutionalProjection(inputs, inner, terms.offsets)
            return nn.Linear(inputs, inner)

        self.query = projection("q", width)
        self.key = projection("k", width)
        self.value = projection("v", value_width or width)
        self.add_biases(n_heads, head_width, terms, dropout)
        self.depthwise = Depthwise(inner, terms.offsets, bias=True) if terms.depthwise else None
        self.convolution = convolution

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, out_width]."""
        value = x if value is None else value
        streams = ((self.query, x), (self.key, x), (self.value, value))
        query, key, values = (
            layer(stream, mask) if isinstance(layer, ConvolutionalProjection) else layer(stream)
            for layer, stream in streams
        )
        return self.mix(query, key, values, (x, value), mask, record)

    def linear_projections(self) -> tuple[nn.Linear, nn.Linear, nn.Linear] | None:
        """The layers of queries, keys and values; None if one of them is convolutional."""
        query, key, value = self.query, self.key, self.value
        if isinstance(query, ConvolutionalProjection) or isinstance(key, ConvolutionalProjection):
            return None
        return None if isinstance(value, ConvolutionalProjection) else (query, key, value)

    def mix(
        self,
        query: Tensor,
        key: Tensor,
        values: Tensor,
        streams: tuple[Tensor, Tensor],
        mask: Mask,
        record: Record | None,
        convolved: Tensor | None = None,
    ) -> Tensor:
        """Both kinds of heads, from projections [B, T, H·E], and the streams of the tokens and of the values.

        convolved: the values of the convolution heads, if they are computed together with other projections.
        """
        attended = self.attend(query, key, values, mask, record)
        if self.depthwise is not None:
            attended = attended + self.depthwise(values, mask)
        if self.convolution is None:
            return attended
        convolved = values if self.convolution.shares_values else convolved
        return torch.cat([attended, self.convolution(streams[0], query, streams[1], mask, record, convolved)], dim=-1)


class ConvolutionalProjection(nn.Module):
    """A linear projection that applies a depthwise convolution first in half of its heads.

    The convolutional queries, keys and values of the composite paper (§5, Table 3); the convolved half comes first.
    """

    def __init__(self, width: int, outputs: int, kernel: int) -> None:
        super().__init__()
        if outputs % 2:
            raise InputError(f"the number of outputs must be even, got {outputs}")
        self.convolution = Depthwise(width, kernel, bias=True)
        self.convolved = nn.Linear(width, outputs // 2)
        self.direct = nn.Linear(width, outputs // 2)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """[B, T, D] -> [B, T, outputs]."""
        return torch.cat([self.convolved(self.convolution(x, mask)), self.direct(x)], dim=-1)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask,
    record: Record | None = None,
    *,
    by_query: Tensor | None = None,
    by_key: Tensor | None = None,
    outside: str = "clamp",
    dropout: float = 0.0,
) -> Tensor:
    """Attend with optional distance biases, all heads [B, H, T, E]; step by step when a record needs maps."""
    if not keeps_scores(record):
        texts = mask.attention_texts
        return relative_attention(
            query, key, value, by_query=by_query, by_key=by_key, texts=texts, outside=outside, dropout=dropout
        )
    scores = relative_scores(query, key, by_query, by_key, mask.attention_texts, outside)
    weights = torch.softmax(scores, dim=-1)
    if record.scores is not None:
        record.scores.append(scores)
    if record.attention is not None:
        record.attention.append(weights)
    weights = torch.dropout(weights, dropout, train=dropout > 0)
    return weights.to(value.dtype) @ value


def keeps_scores(record: Record | None) -> TypeGuard[Record]:
    """Whether a record needs the scores or the weights of attention, which kernels don't keep."""
    return record is not None and (record.attention is not None or record.scores is not None)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """[B, T, H·E] -> [B, H, T, E]."""
    heads: Tensor = x.unflatten(-1, (n_heads, -1))
    return heads.transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, H, T, E] -> [B, T, H·E]."""
    return x.transpose(1, 2).flatten(-2)


def head_width_of(width: int, n_heads: int, head_width: int | None) -> int:
    """Return the given head width, or width / n_heads, which must be an integer."""
    if head_width is None and width % n_heads:
        raise InputError(f"n_heads ({n_heads}) must divide the width, {width}")
    return head_width or width // n_heads
