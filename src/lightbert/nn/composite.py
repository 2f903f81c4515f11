"""The mixers of the composite paper (Chang et al.): convolutions in self-attention, and their version of ConvBERT."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.attention import Attention, head_width_of
from lightbert.nn.convolution import Depthwise
from lightbert.nn.init import Constant, Initial, Uniform
from lightbert.nn.mask import Mask
from lightbert.nn.record import Record
from lightbert.ops.dynamic_conv import softmax_within_text, window_sum
from lightbert.ops.relative_attention import check_outside


class CompositeAttention(Attention):
    """Self-attention whose scores add, for each offset in ±radius, any of three convolution weights (Eq. 6).

    ``fixed``: one learned weight per head and offset. ``query_dynamic`` and ``key_dynamic``: generated from the query
    or the key by one map per layer that all heads share. ``outside`` sets the weight of offsets beyond the radius: the
    outermost weight ("clamp", as released) or zero ("zero", as in the paper). ``depthwise`` adds a depthwise
    convolution of the values to the result (Eq. 7); ``convolved`` lists the projections, out of "qkv", that apply a
    depthwise convolution in half of their heads.
    """

    def __init__(
        self,
        width: int,
        n_heads: int,
        *,
        radius: int,
        head_width: int | None = None,
        value_width: int | None = None,
        fixed: bool = True,
        query_dynamic: bool = True,
        key_dynamic: bool = False,
        outside: str = "clamp",
        depthwise: bool = False,
        convolved: str = "",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if set(convolved) - set("qkv"):
            raise InputError(f"convolved must be a combination of 'q', 'k' and 'v', got {convolved!r}")
        if convolved and n_heads % 2:
            raise InputError(f"n_heads must be even with convolved = {convolved!r}, got {n_heads}")
        check_outside(outside)
        head_width, offsets = head_width_of(width, n_heads, head_width), 2 * radius + 1
        self.width, self.value_width, self.n_heads, self.dropout = width, value_width, n_heads, dropout
        self.out_width = n_heads * head_width
        self.offsets, self.outside = offsets, outside

        def projection(name: str, inputs: int) -> nn.Module:
            if name in convolved:
                return ConvolutionalProjection(inputs, self.out_width, offsets)
            return nn.Linear(inputs, self.out_width)

        self.query = projection("q", width)
        self.key = projection("k", width)
        self.value = projection("v", value_width or width)
        self.fixed = nn.Parameter(torch.empty(n_heads, offsets)) if fixed else None
        self.query_dynamic = nn.Parameter(torch.empty(head_width, offsets)) if query_dynamic else None
        self.key_dynamic = nn.Parameter(torch.empty(head_width, offsets)) if key_dynamic else None
        self.depthwise = Depthwise(self.out_width, offsets, bias=True) if depthwise else None

    def initial_weights(self) -> Initial:
        """Zeros for the fixed weights, uniform in ±1/√(number of offsets) for the dynamic maps, as released."""
        dynamic = Uniform(1 / math.sqrt(self.offsets))
        return {"fixed": Constant(0.0), "query_dynamic": dynamic, "key_dynamic": dynamic}

    def biases(self, query: Tensor, key: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The fixed weights and those generated from queries, and those generated from keys."""
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

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, out_width]."""
        streams = ((self.value, x if value is None else value), (self.query, x), (self.key, x))
        values, query, key = (
            layer(stream, mask) if isinstance(layer, ConvolutionalProjection) else layer(stream)
            for layer, stream in streams
        )
        attended = self.attend(query, key, values, mask, record)
        return attended if self.depthwise is None else attended + self.depthwise(values, mask)


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
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if n_heads % 2 or width % n_heads:
            raise InputError(f"n_heads ({n_heads}) must be even and divide the width, {width}")
        if indexed_by not in ("query", "key"):
            raise InputError(f"indexed_by must be 'query' or 'key', got {indexed_by!r}")
        half = width // 2
        self.width, self.value_width, self.n_heads, self.dropout = width, value_width, n_heads // 2, dropout
        self.out_width, self.indexed_by, self.taps = width, indexed_by, kernel
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
