"""The gradients of the kernel layer of wide heads on a GPU: a kernel for queries and span-aware keys, and a matmul.

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
    registers: int | None
    """The limit per thread."""
    programs: int
    """The maximum per share of the channels; each program writes its sums."""


_SIZES, _LARGE_SIZES = Sizes(64, 64, 4, 168, 256), Sizes(32, 64, 4, None, 512)
"""The second is for float32 and layers of many rows, whose operands need more memory."""
_FEW_ROWS = 128
_BLOCK_ROWS = 32
"""The rows of the layer that are multiplied at once."""


@triton.jit(do_not_specialize=["n_tokens"])
def _span_product_gradients_kernel(
    of_logits,
    query,
    span_key,
    span_bias,
    weight,
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
    precision: tl.constexpr,
    steps: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
    block_rows: tl.constexpr,
    own_rows: tl.constexpr,
):
    """Add to the gradient of the queries, write that of the keys and the product, and the sums of these tokens.

    The sums are those of the gradients of the logits, the keys and the queries. Programs for different channels of the
    same tokens sum up different rows, ``own_rows`` each.
    """
    parts: tl.constexpr = (width + block_channels - 1) // block_channels
    program, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    channel = part * block_channels + tl.arange(0, block_channels)[None, :]
    own_row = part * own_rows + tl.arange(0, own_rows)[None, :]
    shift = shifts(span_bias, channel, width)
    of_bias = tl.zeros((1, own_rows), tl.float32)
    of_shift = tl.zeros((1, block_channels), tl.float32)
    of_queries = tl.zeros((1, block_channels), tl.float32)
    for step in range(steps):
        first = (program * steps + step) * block_tokens
        token = (first + tl.arange(0, block_tokens)).to(tl.int64)[:, None]
        here = (token < n_tokens) | even
        within, place = here & (channel < width), token * width + channel
        of_query_place = token * of_query_stride + channel

        # All loads come first, so that a program waits for memory once.
        changes, factors = (), ()
        for block in tl.static_range(0, rows, block_rows):
            row = block + tl.arange(0, block_rows)
            in_logits, in_weight = here & (row < rows)[None, :], (row < rows)[:, None] & (channel < width)
            changes = changes + (tl.load(of_logits + token * rows + row[None, :], mask=in_logits, other=0.0),)
            factors = factors + (tl.load(weight + row[:, None] * width + channel, mask=in_weight, other=0.0),)
        q = load(query, token * query_stride + channel, within, even)
        k = keys(span_key, token * key_stride + channel, within, even, shift)
        q_change = load(of_query, of_query_place, within, even)
        own_change = tl.load(of_logits + token * rows + own_row, mask=here & (own_row < rows), other=0.0)

        change = tl.zeros((block_tokens, block_channels), tl.float32)
        for block in tl.static_range((rows + block_rows - 1) // block_rows):
            change = tl.dot(changes[block], factors[block], change, input_precision=precision)
        # Stored and loaded again, it has the layout of the other tiles. Otherwise the compiler would convert those to
        # the layout of tensor cores, and compute everything in both layouts.
        store(of_span_key, place, change, within, even)
        tl.debug_barrier()
        change = load(of_span_key, place, within, even)

        q_change += change * k
        k_change = change * q
        store(span, place, q * k, within, even)
        store(of_query, of_query_place, q_change, within, even)
        store(of_span_key, place, k_change, within, even)
        of_bias += tl.sum(own_change.to(tl.float32), axis=0, keep_dims=True)
        of_shift += tl.sum(k_change, axis=0, keep_dims=True)
        of_queries += tl.sum(q_change, axis=0, keep_dims=True)
    partial += program.to(tl.int64) * (rows + 2 * width)
    tl.store(partial + own_row, of_bias, mask=own_row < rows)
    tl.store(partial + rows + channel, of_shift, mask=channel < width)
    tl.store(partial + rows + width + channel, of_queries, mask=channel < width)


def _sizes(weight: Tensor) -> Sizes:
    return _LARGE_SIZES if weight.dtype is torch.float32 or len(weight) > _FEW_ROWS else _SIZES


def product_gradients(
    of_logits: Tensor,
    query: Tensor,
    span_key: Tensor,
    span_bias: Tensor,
    weight: Tensor,
    of_query: Tensor,
    *,
    sizes: Sizes | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of span_key and weight, and of bias, span_bias and a bias of the query one after the other.

    The gradient of the query is added to ``of_query``, in place, and summed with what was there.
    """
    query, span_key, weight, of_logits = flat(query), flat(span_key), weight.contiguous(), of_logits.contiguous()
    (rows, width), tokens = weight.shape, query.shape[:2].numel()
    sizes = sizes or _sizes(weight)
    channels = channels_of_tile(width, sizes.channels)
    parts, blocks = triton.cdiv(width, channels), triton.cdiv(tokens, sizes.tokens)
    steps = partial_sums.steps_per_program(blocks, sizes.programs)
    programs = triton.cdiv(blocks, steps)
    of_span_key, span = (torch.empty(query.shape, dtype=query.dtype, device=query.device) for _ in range(2))
    partial = torch.empty((programs, rows + 2 * width), dtype=torch.float32, device=query.device)
    if tokens:
        _span_product_gradients_kernel[(programs * parts,)](
            *(of_logits, query, span_key, span_bias.contiguous(), weight, of_query, of_span_key, span, partial),
            n_tokens=tokens,
            query_stride=query.stride(1),
            key_stride=span_key.stride(1),
            of_query_stride=of_query.stride(1),
            width=width,
            rows=rows,
            even=tokens % (sizes.tokens * steps) == 0 and width % channels == 0,
            precision="ieee" if query.dtype is torch.float32 else "tf32",
            steps=steps,
            block_tokens=sizes.tokens,
            block_channels=channels,
            block_rows=_BLOCK_ROWS,
            own_rows=triton.next_power_of_2(triton.cdiv(rows, parts)),
            num_warps=sizes.warps,
            maxnreg=sizes.registers,
            enable_fp_fusion=True,
        )
    of_weight = of_logits.flatten(0, 1).t() @ span.flatten(0, 1)
    return of_span_key, of_weight, partial_sums.sum_programs(partial, weight.dtype)
