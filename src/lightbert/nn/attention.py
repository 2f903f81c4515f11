"""Self-attention, and the attention function that all mixers share."""

from typing import TypeGuard

import torch
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.mask import Mask
from lightbert.nn.mixer import Mixer
from lightbert.nn.projections import can_fuse, project, project_together
from lightbert.nn.record import Record
from lightbert.ops.joined_attention import has_kernel, joined_attention
from lightbert.ops.joined_attention.layout import Layout
from lightbert.ops.relative_attention import relative_attention, relative_scores


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """[B, T, H·E] -> [B, H, T, E]."""
    heads: Tensor = x.unflatten(-1, (n_heads, -1))
    return heads.transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, H, T, E] -> [B, T, H·E]."""
    return x.transpose(1, 2).flatten(-2)


def keeps_scores(record: Record | None) -> TypeGuard[Record]:
    """Whether a record needs the scores or the weights of attention, which kernels don't keep."""
    return record is not None and (record.attention is not None or record.scores is not None)


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
    """Attend with optional distance biases, all heads [B, H, T, E]: fused, or step by step when a record needs maps."""
    if not keeps_scores(record):
        return relative_attention(
            query,
            key,
            value,
            by_query=by_query,
            by_key=by_key,
            texts=mask.attention_texts,
            outside=outside,
            dropout=dropout,
        )
    scores = relative_scores(query, key, by_query, by_key, mask.attention_texts, outside)
    weights = torch.softmax(scores, dim=-1)
    if record.scores is not None:
        record.scores.append(scores)
    if record.attention is not None:
        record.attention.append(weights)
    weights = torch.dropout(weights, dropout, train=dropout > 0)
    return weights.to(value.dtype) @ value


def head_width_of(width: int, n_heads: int, head_width: int | None) -> int:
    """Return the given head width, or width / n_heads, which must be an integer."""
    if head_width is None and width % n_heads:
        raise InputError(f"n_heads ({n_heads}) must divide the width, {width}")
    return head_width or width // n_heads


class SelfAttention(Mixer):
    """Multi-head self-attention without the output projection, which belongs to the block.

    With fewer heads of the same width it is bottleneck attention (ConvBERT §3.3), with wider heads the inverted
    bottleneck of IB-BERT. With ``value_width`` the values come from a second stream, as in MobileBERT.
    """

    def __init__(
        self,
        width: int,
        n_heads: int,
        *,
        head_width: int | None = None,
        value_width: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.width, self.value_width, self.n_heads = width, value_width, n_heads
        self.out_width = n_heads * head_width_of(width, n_heads, head_width)
        self.query = nn.Linear(width, self.out_width)
        self.key = nn.Linear(width, self.out_width)
        self.value = nn.Linear(value_width or width, self.out_width)
        self.dropout = dropout

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        *,
        value: Tensor | None = None,
        record: Record | None = None,
        values: Tensor | None = None,
    ) -> Tensor:
        """[B, T, D] -> [B, T, out_width].

        values [B, T, out_width]: the result of the layer ``value``, if it is computed together with other projections.
        """
        dropout = self.dropout if self.training else 0.0
        layers = (self.query, self.key, self.value)
        layout = Layout(self.n_heads, self.out_width // self.n_heads)
        if value is None and not keeps_scores(record) and can_fuse(*layers) and has_kernel(x, layout):
            return joined_attention(project_together(x, *layers), mask.attention_texts, layout=layout, dropout=dropout)
        if value is None:
            streams = project(x, *layers)
        else:
            streams = (*project(x, self.query, self.key), self.value(value) if values is None else values)
        query, key, values = (split_heads(stream, self.n_heads) for stream in streams)
        return merge_heads(attend(query, key, values, mask, record, dropout=dropout))
