"""Composite attention: content scores plus fixed and dynamic lightweight convolutions (Chang et al., Eq. 6)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.attention import attend, head_width_of, keeps_scores, merge_heads, split_heads
from lightbert.nn.distributions import Constant, Initial, Uniform
from lightbert.nn.mask import Mask
from lightbert.nn.mixer import Mixer
from lightbert.nn.projections import (
    ConvolutionalProjection,
    Depthwise,
    can_fuse,
    project,
    project_weights_together,
)
from lightbert.nn.record import Record
from lightbert.ops.joined_attention import has_kernel, joined_attention
from lightbert.ops.joined_attention.layout import Layout
from lightbert.ops.relative_attention import check_outside


class CompositeAttention(Mixer):
    """Self-attention whose scores add, for each offset in ±radius, any of three convolution weights.

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
        each = head_width_of(width, n_heads, head_width)
        offsets = 2 * radius + 1
        self.width, self.value_width, self.n_heads = width, value_width, n_heads
        self.out_width = n_heads * each
        self.offsets, self.outside, self.dropout = offsets, outside, dropout

        def projection(name: str, inputs: int) -> nn.Module:
            if name in convolved:
                return ConvolutionalProjection(inputs, self.out_width, offsets)
            return nn.Linear(inputs, self.out_width)

        self.query = projection("q", width)
        self.key = projection("k", width)
        self.value = projection("v", value_width or width)
        self.fixed = nn.Parameter(torch.empty(n_heads, offsets)) if fixed else None
        self.query_dynamic = nn.Parameter(torch.empty(each, offsets)) if query_dynamic else None
        self.key_dynamic = nn.Parameter(torch.empty(each, offsets)) if key_dynamic else None
        self.depthwise = Depthwise(self.out_width, offsets, bias=True) if depthwise else None

    def initial_weights(self) -> Initial:
        """Zeros for the fixed weights, uniform in ±1/√(number of offsets) for the dynamic maps, as released."""
        dynamic = Uniform(1 / math.sqrt(self.offsets))
        return {"fixed": Constant(0.0), "query_dynamic": dynamic, "key_dynamic": dynamic}

    def _weights(self, heads: Tensor, dynamic: Tensor | None) -> Tensor | None:
        """Generate one weight per offset from queries or keys: [B, H, T, E] -> [B, H, T, 2R+1]."""
        if dynamic is None:
            return None
        matrix = dynamic.to(heads.dtype)
        if heads.is_cuda:
            # Tensor cores need rows of 16 bytes.
            matrix = F.pad(matrix, (0, -self.offsets % 8))
        # As the projections are: a matmul of [B, H, T, E] would copy the heads.
        token_major = heads.transpose(1, 2) @ matrix
        weights: Tensor = token_major.transpose(1, 2)[..., : self.offsets] * heads.shape[-1] ** -0.5
        return weights

    @property
    def _layout(self) -> Layout:
        by_query = self.fixed is not None or self.query_dynamic is not None
        each = self.out_width // self.n_heads
        return Layout(self.n_heads, each, self.offsets, by_query, self.key_dynamic is not None)

    def _as_layer(self, layer: nn.Linear, dynamic: Tensor | None, fixed: Tensor | None) -> tuple[Tensor, Tensor]:
        """The weights of all offsets as a linear layer of the input: queries or keys, times their map, plus fixed."""
        rows = self.n_heads * self.offsets
        weight, bias = layer.weight.new_zeros(rows, self.width), layer.bias.new_zeros(rows)
        if dynamic is not None:
            scaled = dynamic.t() * (self.out_width // self.n_heads) ** -0.5
            weight = (scaled @ layer.weight.unflatten(0, (self.n_heads, -1))).flatten(0, 1)
            bias = (layer.bias.unflatten(0, (self.n_heads, -1)) @ scaled.t()).flatten()
        if fixed is not None:
            bias = bias + fixed.flatten()
        unused = self._layout.bias_width - rows
        return F.pad(weight, (0, 0, 0, unused)), F.pad(bias, (0, unused))

    def _project_together(self, x: Tensor, *layers: nn.Linear) -> Tensor:
        """Queries, keys, values and all weights by one matmul, [B, T, width of the layout]."""
        query, key, _ = layers
        weights: list[tuple[Tensor, Tensor]] = [(layer.weight, layer.bias) for layer in layers]
        if self._layout.by_query:
            weights.append(self._as_layer(query, self.query_dynamic, self.fixed))
        if self._layout.by_key:
            weights.append(self._as_layer(key, self.key_dynamic, None))
        return project_weights_together(x, *weights)

    def _project(self, x: Tensor, mask: Mask, value: Tensor | None) -> tuple[Tensor, ...]:
        """Values, queries and keys: [B, T, out_width] each."""
        streams = [x if value is None else value, x, x]
        layers = [self.value, self.query, self.key]
        plain = [layer for layer in layers if isinstance(layer, nn.Linear)]
        if value is None and len(plain) == len(layers):
            return project(x, *plain)
        return tuple(
            layer(stream, mask) if isinstance(layer, ConvolutionalProjection) else layer(stream)
            for layer, stream in zip(layers, streams, strict=True)
        )

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, out_width]."""
        dropout = self.dropout if self.training else 0.0
        plain = [layer for layer in (self.query, self.key, self.value) if isinstance(layer, nn.Linear)]
        joined = value is None and self.depthwise is None and len(plain) == 3 and can_fuse(*plain)
        if joined and not keeps_scores(record) and has_kernel(x, self._layout):
            streams, texts = self._project_together(x, *plain), mask.attention_texts
            return joined_attention(streams, texts, layout=self._layout, outside=self.outside, dropout=dropout)
        values, queries, keys = self._project(x, mask, value)
        query, key = (split_heads(stream, self.n_heads) for stream in (queries, keys))
        by_query = self._weights(query, self.query_dynamic)
        if self.fixed is not None:
            fixed = self.fixed[None, :, None, :]
            by_query = fixed if by_query is None else by_query + fixed
        attended = attend(
            query,
            key,
            split_heads(values, self.n_heads),
            mask,
            record,
            by_query=by_query,
            by_key=self._weights(key, self.key_dynamic),
            outside=self.outside,
            dropout=dropout,
        )
        merged = merge_heads(attended)
        return merged if self.depthwise is None else merged + self.depthwise(values, mask)
