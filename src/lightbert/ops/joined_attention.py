"""Attention on the output of one matmul: queries, keys, values and perhaps biases as one tensor."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightbert.ops import kernels
from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.operators import dropout_seed, operator
from lightbert.ops.relative_attention import check_outside, fits, relative_attention

ALIGNMENT = 16
"""The channels of each bias are a multiple of it: tokens start at multiples of 32 bytes if those of heads are one."""


class Layout(NamedTuple):
    """H heads of E channels: queries, keys and values, then the weights of 2R+1 offsets by query and by key, if any."""

    n_heads: int
    head_width: int
    offsets: int = 0
    by_query: bool = False
    by_key: bool = False

    @property
    def bias_width(self) -> int:
        """The channels of one kind of bias, padded to a multiple of `ALIGNMENT`."""
        used = self.n_heads * self.offsets
        return used + -used % ALIGNMENT

    @property
    def widths(self) -> list[int]:
        """The channels of each stream."""
        return [self.n_heads * self.head_width] * 3 + [self.bias_width] * (self.by_query + self.by_key)

    @property
    def width(self) -> int:
        """The channels of all streams."""
        return sum(self.widths)

    def heads(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """Views of queries, keys and values [B, H, T, E], and of both biases [B, H, T, 2R+1]."""
        query, key, value, *biases = streams.split(self.widths, dim=-1)
        query, key, value = (x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for x in (query, key, value))
        used = (bias[..., : self.n_heads * self.offsets] for bias in biases)
        views = [bias.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for bias in used]
        by_key = views.pop() if self.by_key else None
        return query, key, value, views.pop() if views else None, by_key

    def unused(self, streams: Tensor) -> list[Tensor]:
        """Views of the channels that pad the biases."""
        biases = streams.split(self.widths, dim=-1)[3:]
        return [bias[..., self.n_heads * self.offsets :] for bias in biases]


def joined_attention(
    streams: Tensor, texts: Tensor | None = None, *, layout: Layout, outside: str = "clamp", dropout: float = 0.0
) -> Tensor:
    """As :func:`lightbert.ops.relative_attention.relative_attention`, on streams [B, T, layout.width] -> [B, T, H·E].

    The gradient of streams is one tensor, too: for separate inputs, copies would join their gradients.
    """
    check_outside(outside)
    if has_kernel(streams, layout):
        seed = dropout_seed(dropout, streams.device)
        return joined_attention_operator(as_autocast(streams), texts, seed, *layout, outside == "clamp", dropout)[0]
    query, key, value, by_query, by_key = layout.heads(streams)
    biases = {"by_query": by_query, "by_key": by_key}
    heads = relative_attention(query, key, value, **biases, texts=texts, outside=outside, dropout=dropout)
    return heads.transpose(1, 2).flatten(2)


def has_kernel(x: Tensor, layout: Layout) -> bool:
    """Whether the kernels run on streams of this layout that are computed from x."""
    offsets = layout.offsets if layout.by_query or layout.by_key else None
    return use_triton("relative_attention", as_autocast(x), fits=fits(layout.head_width, offsets))


_INPUTS = (
    "Tensor streams, Tensor? texts, Tensor? seed, int n_heads, int each, int offsets, bool by_query, bool by_key,"
    " bool clamp, float dropout"
)


def _call(layout: Layout, streams: Tensor, biases: Any, texts: Tensor | None, seed: Tensor | None, *rest: Any) -> Any:
    query, key, value, *_ = streams.split(layout.widths, dim=-1)
    by_query, by_key = biases
    return kernels.relative_attention.prepare(query, key, value, by_query, by_key, texts, seed, layout.n_heads, *rest)


def _fake(streams: Tensor, texts: Any, seed: Any, n_heads: int, each: int, offsets: int, *rest: Any) -> Any:
    batch, tokens, _ = streams.shape
    copy = (batch, n_heads, tokens, offsets)
    return (
        streams.new_empty(batch, tokens, n_heads * each),
        streams.new_empty((batch, n_heads, tokens), dtype=torch.float32),
        *(streams.new_empty(copy if has_bias else 0) for has_bias in rest[:2]),
    )


@operator(f"joined_attention({_INPUTS}) -> (Tensor, Tensor, Tensor, Tensor)", fake=_fake)
def joined_attention_operator(streams: Tensor, texts: Tensor | None, seed: Tensor | None, *settings: Any) -> Any:
    """The result, the sums of the softmax, and copies of both biases in the layout of the kernels."""
    layout = Layout(*settings[:5])
    *_, by_query, by_key = layout.heads(streams)
    # Always copies: an operator must not return views of its inputs, and those of a single token are contiguous.
    contiguous = torch.contiguous_format
    copies = [None if bias is None else bias.clone(memory_format=contiguous) for bias in (by_query, by_key)]
    call = _call(layout, streams, copies, texts, seed, *settings[5:])
    out, log_sums = kernels.relative_attention.forward(call)
    return out, log_sums, *(streams.new_empty(0) if copy is None else copy for copy in copies)


@operator(
    "joined_attention_backward(Tensor grad, Tensor out, Tensor log_sums, Tensor by_query_copy, Tensor by_key_copy,"
    f" {_INPUTS}) -> Tensor",
    fake=lambda grad, out, log_sums, by_query, by_key, streams, *_: streams.new_empty(streams.shape),
)
def _backward(
    grad: Tensor,
    out: Tensor,
    log_sums: Tensor,
    by_query: Tensor,
    by_key: Tensor,
    streams: Tensor,
    texts: Tensor | None,
    seed: Tensor | None,
    *settings: Any,
) -> Tensor:
    layout = Layout(*settings[:5])
    of_streams = streams.new_empty(streams.shape)
    for unused in layout.unused(of_streams):
        unused.zero_()
    of_query, of_key, of_value, *_ = of_streams.split(layout.widths, dim=-1)
    *_, of_by_query, of_by_key = layout.heads(of_streams)
    # An operator gets and returns empty tensors instead of None.
    biases = (by_query if layout.by_query else None, by_key if layout.by_key else None)
    call = _call(layout, streams, biases, texts, seed, *settings[5:])
    into = kernels.relative_attention.Gradients(of_query, of_key, of_value, of_by_query, of_by_key)
    kernels.relative_attention.backward(call, grad, out, log_sums, into=into)
    return of_streams


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    streams, texts, seed, *ctx.settings = inputs
    ctx.save_for_backward(*output, streams, texts, seed)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad: Tensor, *_: Any) -> Any:
    return _backward(grad, *ctx.saved_tensors, *ctx.settings), *[None] * 9


joined_attention_operator.register_autograd(_gradients, setup_context=_keep)
