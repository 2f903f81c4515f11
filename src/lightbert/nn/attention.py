"""Self-attention, the attention function of all mixers, and their interface."""

from typing import TypeGuard

import torch
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.mask import Mask
from lightbert.nn.record import Record
from lightbert.ops.relative_attention import relative_attention, relative_scores


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


class Attention(Mixer):
    """The base class of mixers with attention heads: H heads of E channels.

    A subclass with relative terms overrides `biases`.
    """

    n_heads: int
    dropout: float
    outside: str = "clamp"

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, record: Record | None = None) -> Tensor:
        """Attend with all heads, with the biases of this mixer: three streams [B, T, H·E] -> [B, T, H·E]."""
        q, k, v = (split_heads(stream, self.n_heads) for stream in (query, key, value))
        by_query, by_key = self.biases(q, k)
        biases = {"by_query": by_query, "by_key": by_key}
        dropout = self.dropout if self.training else 0.0
        return merge_heads(attend(q, k, v, mask, record, **biases, outside=self.outside, dropout=dropout))

    def biases(self, query: Tensor, key: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """What the scores add for each offset, by query and by key: [B, H, T, E] -> [B or 1, H, T or 1, 2R+1]."""
        return None, None


class SelfAttention(Attention):
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
        self.width, self.value_width, self.n_heads, self.dropout = width, value_width, n_heads, dropout
        self.out_width = n_heads * head_width_of(width, n_heads, head_width)
        self.query = nn.Linear(width, self.out_width)
        self.key = nn.Linear(width, self.out_width)
        self.value = nn.Linear(value_width or width, self.out_width)

    def forward(self, x: Tensor, mask: Mask, *, value: Tensor | None = None, record: Record | None = None) -> Tensor:
        """[B, T, D] -> [B, T, out_width]."""
        value = x if value is None else value
        return self.attend(self.query(x), self.key(x), self.value(value), mask, record)


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
