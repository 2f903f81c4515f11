"""The gradients of the kernel layer of span-based convolution on a GPU, for narrow layers; wide ones are in `product/`.

The layer is a linear one of the product of queries and span-aware keys, which exists in registers only: `forward/`
computes it, and the backward pass computes it again. A program has all channels and sums the gradients of parameters in
two stages, per program and then over programs, in a fixed order.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.flat_tokens import flat
from lightbert.ops.masked_tiles.triton import load, store
from lightbert.ops.partial_sums import triton as partial_sums


class Sizes(NamedTuple):
    """The size of a program; it has all rows and channels of the layer."""

    tokens: int
    warps: int
    registers: int | None
    programs: int
    """The maximum; each program writes its sums."""


_SIZES, _LARGE_SIZES = Sizes(32, 8, 128, 256), Sizes(32, 8, None, 256)
"""The second is for layers of many rows and for float32, where the first doesn't leave enough registers to a thread."""
_NARROW_CHANNELS, _NARROW_ROWS = 128, 128


@triton.jit
def shifts(span_bias, channel, width: tl.constexpr):
    """The bias of span-aware keys."""
    return tl.load(span_bias + channel, mask=channel < width, other=0.0).to(tl.float32)


@triton.jit
def keys(span_key, place, within, even: tl.constexpr, shift):
    """Span-aware keys, rounded: the compiler then adds and multiplies in half precision, two numbers at a time."""
    shifted = load(span_key, place, within, even) + shift
    return shifted.to(span_key.dtype.element_ty).to(tl.float32)


@triton.jit(do_not_specialize=["n_tokens"])
def _span_gradients_kernel(
    of_logits,
    query,
    span_key,
    span_bias,
    weight,
    of_query,
    of_span_key,
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
):
    """Add to the gradient of the queries, write that of the keys, and the sums of these tokens for parameters.

    The sums are the gradients of weight, bias and span_bias, and those of the queries.
    """
    program = tl.program_id(0)
    channel = tl.arange(0, block_channels)[None, :]
    row = tl.arange(0, block_rows)
    in_weight = (row < rows)[:, None] & (channel < width)
    w = tl.load(weight + row[:, None] * width + channel, mask=in_weight, other=0.0)
    shift = shifts(span_bias, channel, width)
    of_weight = tl.zeros((block_rows, block_channels), tl.float32)
    of_bias = tl.zeros((block_tokens, block_rows), tl.float32)
    of_shift = tl.zeros((block_tokens, block_channels), tl.float32)
    of_queries = tl.zeros((block_tokens, block_channels), tl.float32)
    for step in range(steps):
        first = (program * steps + step) * block_tokens
        token = (first + tl.arange(0, block_tokens)).to(tl.int64)[:, None]
        within = (token < n_tokens) & (channel < width)
        in_logits = (token < n_tokens) & (row < rows)[None, :]
        change = tl.load(of_logits + token * rows + row[None, :], mask=in_logits, other=0.0)
        q = load(query, token * query_stride + channel, within, even)
        k = keys(span_key, token * key_stride + channel, within, even, shift)
        of_query_place = token * of_query_stride + channel
        q_change = load(of_query, of_query_place, within, even)
        of_span = tl.dot(change, w, input_precision=precision)
        q_change += of_span * k
        store(of_query, of_query_place, q_change, within, even)
        of_queries += q_change
        store(of_span_key, token * width + channel, of_span * q, within, even)
        of_weight = tl.dot(tl.trans(change), (q * k).to(change.dtype), of_weight, input_precision=precision)
        of_bias += change.to(tl.float32)
        of_shift += of_span * q
    partial += program.to(tl.int64) * (rows * width + rows + 2 * width)
    tl.store(partial + row[:, None] * width + channel, of_weight, mask=in_weight)
    tl.store(partial + rows * width + row, tl.sum(of_bias, axis=0), mask=row < rows)
    last = partial + rows * width + rows + channel
    tl.store(last, tl.sum(of_shift, axis=0, keep_dims=True), mask=channel < width)
    tl.store(last + width, tl.sum(of_queries, axis=0, keep_dims=True), mask=channel < width)


def is_narrow(weight: Tensor) -> bool:
    """Whether a program has all channels of a layer and sums the gradient of its weight."""
    rows, width = weight.shape
    return width <= _NARROW_CHANNELS and rows <= _NARROW_ROWS


def channels_of_tile(width: int, most: int) -> int:
    """A power of two that divides the width if there are several tiles and one does."""
    divisor = width & -width
    return max(16, min(most, divisor if divisor >= most // 2 else triton.next_power_of_2(width)))


def _sizes(weight: Tensor) -> Sizes:
    return _LARGE_SIZES if weight.dtype is torch.float32 or len(weight) > _NARROW_ROWS // 2 else _SIZES


def span_gradients(
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

    For narrow layers. The gradient of the query is added to ``of_query``, in place, and summed with what was there.
    """
    query, span_key, weight, of_logits = flat(query), flat(span_key), weight.contiguous(), of_logits.contiguous()
    (rows, width), tokens = weight.shape, query.shape[:2].numel()
    sizes = sizes or _sizes(weight)
    channels, blocks = max(16, triton.next_power_of_2(width)), triton.cdiv(tokens, sizes.tokens)
    steps = partial_sums.steps_per_program(blocks, sizes.programs)
    programs = triton.cdiv(blocks, steps)
    of_span_key = torch.empty(span_key.shape, dtype=span_key.dtype, device=span_key.device)
    partial = torch.empty((programs, weight.numel() + rows + 2 * width), dtype=torch.float32, device=query.device)
    if tokens:
        _span_gradients_kernel[(programs,)](
            *(of_logits, query, span_key, span_bias.contiguous(), weight, of_query, of_span_key, partial, tokens),
            query_stride=query.stride(1),
            key_stride=span_key.stride(1),
            of_query_stride=of_query.stride(1),
            width=width,
            rows=rows,
            even=tokens % (sizes.tokens * steps) == 0 and width == channels,
            precision="ieee" if query.dtype is torch.float32 else "tf32",
            steps=steps,
            block_tokens=sizes.tokens,
            block_channels=channels,
            block_rows=max(16, triton.next_power_of_2(rows)),
            num_warps=sizes.warps,
            num_stages=2,
            maxnreg=sizes.registers,
            enable_fp_fusion=True,
        )
    return of_span_key, *partial_sums.sum_programs_apart(partial, weight.shape, weight.dtype, weight.dtype)
