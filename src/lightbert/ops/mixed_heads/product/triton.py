"""The gradients of the kernel layer of wide heads on a GPU: matmuls, and a kernel for queries and span-aware keys.

The kernel also writes the product of both, which the matmul for the gradient of the weight reads, and sums the
gradients of biases in two stages, per program and then over programs, in a fixed order.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.flat_tokens import flat
from lightbert.ops.masked_tiles.triton import load, store
from lightbert.ops.mixed_heads.triton import channels_of_tile, keys, shifts
from lightbert.ops.partial_sums import triton as partial_sums


class Sizes(NamedTuple):
    """The size of a program."""

    tokens: int
    channels: int
    """The maximum of a tile; programs share out the channels of a layer."""
    warps: int
    programs: int
    """The maximum per share of the channels; each program writes its sums."""


_SIZES = Sizes(64, 64, 4, 512)


@triton.jit(do_not_specialize=["n_tokens"])
def _span_product_gradients_kernel(
    of_span,
    of_logits,
    query,
    span_key,
    span_bias,
    of_query,
    of_span_key,
    span,
    partial,
    n_tokens,
    query_stride: tl.constexpr,
    key_stride: tl.constexpr,
    of_query_stride: tl.constexpr,
    width: tl.constexpr,
    rows: tl.constexpr,
    even: tl.constexpr,
    steps: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
    block_rows: tl.constexpr,
):
    """Add to the gradient of the queries, write that of the keys and the product, and the sums of these tokens.

    The sums are those of the gradients of the logits, the keys and the queries.
    """
    program, part = tl.program_id(0), tl.program_id(1)
    channel = part * block_channels + tl.arange(0, block_channels)[None, :]
    row = tl.arange(0, block_rows)[None, :]
    shift = shifts(span_bias, channel, width)
    of_bias = tl.zeros((1, block_rows), tl.float32)
    of_shift = tl.zeros((1, block_channels), tl.float32)
    of_queries = tl.zeros((1, block_channels), tl.float32)
    for step in range(steps):
        first = (program * steps + step) * block_tokens
        token = (first + tl.arange(0, block_tokens)).to(tl.int64)[:, None]
        within, place = (token < n_tokens) & (channel < width), token * width + channel
        of_query_place = token * of_query_stride + channel
        change = load(of_span, place, within, even)
        q = load(query, token * query_stride + channel, within, even)
        k = keys(span_key, token * key_stride + channel, within, even, shift)
        q_change = load(of_query, of_query_place, within, even) + change * k
        store(of_query, of_query_place, q_change, within, even)
        store(of_span_key, place, change * q, within, even)
        store(span, place, q * k, within, even)
        of_shift += tl.sum(change * q, axis=0, keep_dims=True)
        of_queries += tl.sum(q_change, axis=0, keep_dims=True)
        if part == 0:
            in_logits = (token < n_tokens) & (row < rows)
            of_rows = tl.load(of_logits + token * rows + row, mask=in_logits, other=0.0).to(tl.float32)
            of_bias += tl.sum(of_rows, axis=0, keep_dims=True)
    partial += program.to(tl.int64) * (rows + 2 * width)
    if part == 0:
        tl.store(partial + row, of_bias, mask=row < rows)
    tl.store(partial + rows + channel, of_shift, mask=channel < width)
    tl.store(partial + rows + width + channel, of_queries, mask=channel < width)


def product_gradients(
    of_logits: Tensor,
    query: Tensor,
    span_key: Tensor,
    span_bias: Tensor,
    weight: Tensor,
    of_query: Tensor,
    *,
    sizes: Sizes = _SIZES,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of span_key and weight, and of bias, span_bias and a bias of the query one after the other.

    The gradient of the query is added to ``of_query``, in place, and summed with what was there.
    """
    query, span_key, of_logits = flat(query), flat(span_key), of_logits.contiguous()
    (rows, width), tokens = weight.shape, query.shape[:2].numel()
    channels = channels_of_tile(width, sizes.channels)
    blocks = triton.cdiv(tokens, sizes.tokens)
    steps = partial_sums.steps_per_program(blocks, sizes.programs)
    programs = triton.cdiv(blocks, steps)
    of_span = of_logits @ weight
    of_span_key, span = torch.empty_like(of_span), torch.empty_like(of_span)
    partial = torch.empty((programs, rows + 2 * width), dtype=torch.float32, device=query.device)
    if tokens:
        _span_product_gradients_kernel[(programs, triton.cdiv(width, channels))](
            *(of_span, of_logits, query, span_key, span_bias.contiguous(), of_query, of_span_key, span, partial),
            n_tokens=tokens,
            query_stride=query.stride(1),
            key_stride=span_key.stride(1),
            of_query_stride=of_query.stride(1),
            width=width,
            rows=rows,
            even=tokens % sizes.tokens == 0 and width % channels == 0,
            steps=steps,
            block_tokens=sizes.tokens,
            block_channels=channels,
            block_rows=triton.next_power_of_2(rows),
            num_warps=sizes.warps,
            enable_fp_fusion=True,
        )
    of_weight = of_logits.flatten(0, 1).t() @ span.flatten(0, 1)
    return of_span_key, of_weight, partial_sums.sum_programs(partial, weight.dtype)
