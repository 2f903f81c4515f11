"""The product of queries and span-aware keys, and its gradients, on slices of wider tensors: for wide heads."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.flat_tokens import flat
from lightbert.ops.masked_tiles.triton import load, store

_ELEMENTS = 2048
"""Numbers per program."""
_WARPS = 4


@triton.jit(do_not_specialize=["n_tokens"])
def _span_product_kernel(
    query,
    span_key,
    span,
    of_span,
    of_query,
    of_span_key,
    n_tokens,
    query_stride: tl.constexpr,
    key_stride: tl.constexpr,
    of_query_stride: tl.constexpr,
    width: tl.constexpr,
    even: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
):
    """Write the product; or, given its gradient, add to the gradient of the query and write that of the key."""
    token = tl.program_id(0).to(tl.int64) * block_tokens + tl.arange(0, block_tokens)[:, None]
    channel = tl.arange(0, block_channels)[None, :]
    within = (token < n_tokens) & (channel < width)
    q = load(query, token * query_stride + channel, within, even)
    k = load(span_key, token * key_stride + channel, within, even)
    place = token * width + channel
    if of_span is None:
        store(span, place, q * k, within, even)
    else:
        change = load(of_span, place, within, even)
        query_place = token * of_query_stride + channel
        store(of_query, query_place, load(of_query, query_place, within, even) + change * k, within, even)
        store(of_span_key, place, change * q, within, even)


def multiply(query: Tensor, span_key: Tensor) -> Tensor:
    """The product of both, [B, T, a]."""
    span = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    _launch(query, span_key, span, None, None, None)
    return span


def add_product_gradients(of_span: Tensor, query: Tensor, span_key: Tensor, of_query: Tensor) -> Tensor:
    """Add the gradient of the query to ``of_query``, in place, and return the gradient of the key."""
    of_span_key = torch.empty(span_key.shape, dtype=span_key.dtype, device=span_key.device)
    _launch(query, span_key, None, of_span.contiguous(), of_query, of_span_key)
    return of_span_key


def _launch(
    query: Tensor,
    span_key: Tensor,
    span: Tensor | None,
    of_span: Tensor | None,
    of_query: Tensor | None,
    of_span_key: Tensor | None,
) -> None:
    query, span_key = flat(query), flat(span_key)
    batch, tokens, width = query.shape
    channels = triton.next_power_of_2(width)
    block_tokens = max(1, _ELEMENTS // channels)
    if query.numel():
        _span_product_kernel[(triton.cdiv(batch * tokens, block_tokens),)](
            *(query, span_key, span, of_span, of_query, of_span_key, batch * tokens),
            query_stride=query.stride(1),
            key_stride=span_key.stride(1),
            of_query_stride=0 if of_query is None else of_query.stride(1),
            width=width,
            even=batch * tokens % block_tokens == 0 and width == channels,
            block_tokens=block_tokens,
            block_channels=channels,
            num_warps=_WARPS,
        )
