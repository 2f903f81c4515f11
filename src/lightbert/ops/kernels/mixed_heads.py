"""The convolution heads of mixed attention on a GPU.

Forward, one kernel has the kernel layer, the softmax of its logits and the convolution. A program computes some
consecutive tokens of a row, all heads. Its logits and weights go through memory, for the backward pass and to get
from one layout to the next, and stay in the cache meanwhile. The convolution is a batch of products of small bands of
weights with values, see `lightbert.ops.kernels.dynamic_conv`.

The kernel layer is a linear one of the product of queries and span-aware keys, which the backward pass computes again.
In narrow layers a program has all channels, and the product exists in registers only. In wide ones the kernel writes
the product, for a matmul that computes the gradient of the weight. Both sum the gradients of the other parameters in
two stages, per program and then over programs, in a fixed order.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.kernels.dynamic_conv import OWN, softmax_of_taps
from lightbert.ops.kernels.tiles import (
    flat,
    load,
    same_text,
    steps_per_program,
    store,
    sum_programs,
    sum_programs_apart,
    text_rule,
)


class Sizes(NamedTuple):
    """The size of a program, which has all rows (outputs) of the kernel layer."""

    tokens: int
    """The maximum."""
    warps: int
    registers: int | None
    """The limit per thread."""
    channels: int = 0
    """The maximum of a tile; narrow layers have one tile."""
    stages: int = 1
    """With 2 or more, loads of the next tiles run while a tile is multiplied."""
    programs: int = 0
    """The maximum in the backward pass, for each part of the channels; each program writes its sums."""


FORWARD, LARGE_FORWARD = Sizes(64, 4, 128, channels=64, stages=2), Sizes(32, 4, None, channels=64)
"""The second one of each pair is for float32 and layers of many rows, which need more registers and memory."""
NARROW, LARGE_NARROW = Sizes(32, 8, 128, programs=256), Sizes(32, 8, None, programs=256)
WIDE, LARGE_WIDE = Sizes(64, 4, 168, channels=64, programs=256), Sizes(32, 4, None, channels=64, programs=512)
_FEW_ROWS = 128
_NARROW_CHANNELS, _NARROW_ROWS = 128, 128
_FEWEST_TOKENS = 32
"""Of a program: none spans two rows, so that those of short rows are small."""
_BLOCK_ROWS = 32
"""The rows of a wide layer that are multiplied at once."""


@triton.jit
def shifts(span_bias, channel, width: tl.constexpr):
    """The bias of span-aware keys."""
    return tl.load(span_bias + channel, mask=channel < width, other=0.0).to(tl.float32)


@triton.jit
def keys(span_key, place, within, even: tl.constexpr, shift):
    """Span-aware keys, rounded: the compiler then adds and multiplies in half precision, two numbers at a time."""
    shifted = load(span_key, place, within, even) + shift
    return shifted.to(span_key.dtype.element_ty).to(tl.float32)


def channels_of_tile(width: int, most: int) -> int:
    """A power of two that divides the width if there are several tiles and one does."""
    divisor = width & -width
    return max(16, min(most, divisor if divisor >= most // 2 else triton.next_power_of_2(width)))


@triton.jit(do_not_specialize=["row_tokens"])
def _span_convolution_kernel(
    query,
    span_key,
    span_bias,
    weight,
    bias,
    values,
    texts,
    out,
    kept,
    row_tokens,
    query_stride: tl.constexpr,
    key_stride: tl.constexpr,
    value_stride: tl.constexpr,
    out_stride: tl.constexpr,
    width: tl.constexpr,
    n_heads: tl.constexpr,
    taps: tl.constexpr,
    padded: tl.constexpr,
    rule: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    stages: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
    block_outputs: tl.constexpr,
    block_heads: tl.constexpr,
    block_taps: tl.constexpr,
    block_each: tl.constexpr,
    near_tokens: tl.constexpr,
):
    radius: tl.constexpr = taps // 2
    outputs: tl.constexpr = n_heads * padded
    each: tl.constexpr = width // n_heads
    tiles = tl.cdiv(row_tokens, block_tokens)
    start = (tl.program_id(0) % tiles) * block_tokens
    first = (tl.program_id(0) // tiles).to(tl.int64) * row_tokens
    values += first * value_stride
    out += first * out_stride
    kept += first * outputs

    # The logits, where the weights will be.
    own = start + tl.arange(0, block_tokens)[:, None]
    here = (own < row_tokens) | even
    output = tl.arange(0, block_outputs)
    total = tl.zeros((block_tokens, block_outputs), tl.float32)
    for part in tl.range(0, width, block_channels, num_stages=stages):
        channel = part + tl.arange(0, block_channels)[None, :]
        within = here & (channel < width)
        q = load(query, (first + own) * query_stride + channel, within, even)
        shift = shifts(span_bias, channel, width)
        k = keys(span_key, (first + own) * key_stride + channel, within, even, shift)
        in_weight = (output < outputs)[:, None] & (channel < width)
        w = tl.load(weight + output[:, None] * width + channel, mask=in_weight, other=0.0)
        total = tl.dot((q * k).to(w.dtype), tl.trans(w), total, input_precision=precision)
    total += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    in_layer = here & (output < outputs)[None, :]
    tl.store(kept + own * outputs + output[None, :], total.to(kept.dtype.element_ty), mask=in_layer)
    tl.debug_barrier()

    # The weights of all heads [tokens, heads, taps]; the sign says whether a tap reads a token of the same text.
    token = (start + tl.arange(0, block_tokens))[:, None, None]
    head, tap = tl.arange(0, block_heads)[None, :, None], tl.arange(0, block_taps)[None, None, :]
    places = token * outputs + head * padded + tap
    written = ((token < row_tokens) | even) & (head < n_heads) & (tap < padded)
    scores = tl.load(kept + places, mask=written, other=0.0).to(tl.float32)
    weights, lack = softmax_of_taps(scores, tap, taps, kept.dtype.element_ty, 2)
    if rule > 0:
        source = token + tap - radius
        is_source = (source >= 0) & (source < row_tokens) & (tap < taps)
        text = tl.load(texts + first + source, mask=is_source, other=0)
        visible = text != 0
        if rule > 1:
            visible = same_text(text, tl.load(texts + first + token, mask=token < row_tokens, other=0))
        weights = tl.where(visible, weights, -weights)
    weights = tl.where(tap == taps, lack, weights)
    tl.store(kept + places, weights.to(kept.dtype.element_ty), mask=written)
    tl.debug_barrier()

    # Bands [bands, own, near] times values [bands, near, channels].
    bands: tl.constexpr = block_tokens // OWN
    begin = start + tl.arange(0, bands)[:, None, None] * OWN
    own_index, near_index = tl.arange(0, OWN)[None, :, None], tl.arange(0, near_tokens)[None, None, :]
    band_token, band_tap = begin + own_index, near_index - own_index
    band_here = (band_token < row_tokens) | even
    in_band = (band_tap >= 0) & (band_tap < taps) & band_here
    near_index = tl.arange(0, near_tokens)[None, :, None]
    near = begin + near_index - radius
    near_here = (near >= 0) & (near < row_tokens) & (near_index < OWN + 2 * radius)
    if rule > 0:
        near_here = near_here & (tl.load(texts + first + near, mask=near_here, other=0) != 0)
    of_head = tl.arange(0, block_each)[None, None, :]
    for number in tl.range(n_heads, num_stages=stages):
        place = near * value_stride + number * each + of_head
        near_values = tl.load(values + place, mask=near_here & (of_head < each), other=0.0)
        band = tl.load(kept + band_token * outputs + number * padded + band_tap, mask=in_band, other=0.0)
        if rule > 1:
            band = tl.where(band > 0, band, 0.0)
        mixed = tl.dot(band.to(near_values.dtype), near_values, input_precision=precision)
        target = out + band_token * out_stride + number * each + of_head
        tl.store(target, mixed.to(out.dtype.element_ty), mask=band_here & (of_head < each))


def _forward_sizes(weight: Tensor) -> Sizes:
    return LARGE_FORWARD if weight.dtype is torch.float32 or len(weight) > _FEW_ROWS else FORWARD


def convolve(
    query: Tensor,
    span_key: Tensor,
    span_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    values: Tensor,
    texts: Tensor | None,
    n_heads: int,
    taps: int,
    out: Tensor,
    *,
    sizes: Sizes | None = None,
) -> Tensor:
    """Write the convolution of ``values`` to ``out``, both [B, T, a]; return the signed weights [B, T, H, P].

    Their logits are a linear layer of query · (span_key + span_bias), with ``weight`` [H·P, a] and ``bias`` [H·P].
    """
    query, span_key, values, weight = flat(query), flat(span_key), flat(values), weight.contiguous()
    texts, rule = text_rule(texts)
    (batch, tokens, width), padded = query.shape, len(weight) // n_heads
    kept = torch.empty((batch, tokens, n_heads, padded), dtype=query.dtype, device=query.device)
    if kept.numel():
        sizes = sizes or _forward_sizes(weight)
        channels = channels_of_tile(width, sizes.channels)
        block_tokens = min(sizes.tokens, max(_FEWEST_TOKENS, triton.next_power_of_2(tokens)))
        _span_convolution_kernel[(batch * triton.cdiv(tokens, block_tokens),)](
            *(query, span_key, span_bias.contiguous(), weight, bias.contiguous(), values, texts, out, kept, tokens),
            query_stride=query.stride(1),
            key_stride=span_key.stride(1),
            value_stride=values.stride(1),
            out_stride=out.stride(1),
            width=width,
            n_heads=n_heads,
            taps=taps,
            padded=padded,
            rule=rule,
            even=tokens % block_tokens == 0 and width % channels == 0,
            precision="ieee" if query.dtype is torch.float32 else "tf32",
            stages=sizes.stages,
            block_tokens=block_tokens,
            block_channels=channels,
            block_outputs=max(16, triton.next_power_of_2(len(weight))),
            block_heads=triton.next_power_of_2(n_heads),
            block_taps=triton.next_power_of_2(padded),
            block_each=max(16, triton.next_power_of_2(width // n_heads)),
            near_tokens=triton.next_power_of_2(OWN.value + padded - 1),
            num_warps=sizes.warps,
            maxnreg=sizes.registers,
            enable_fp_fusion=True,
        )
    return kept


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


def _narrow_sizes(weight: Tensor) -> Sizes:
    return LARGE_NARROW if weight.dtype is torch.float32 or len(weight) > _NARROW_ROWS // 2 else NARROW


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
    sizes = sizes or _narrow_sizes(weight)
    channels, blocks = max(16, triton.next_power_of_2(width)), triton.cdiv(tokens, sizes.tokens)
    steps = steps_per_program(blocks, sizes.programs)
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
    return of_span_key, *sum_programs_apart(partial, weight.shape, weight.dtype, weight.dtype)


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


def _wide_sizes(weight: Tensor) -> Sizes:
    return LARGE_WIDE if weight.dtype is torch.float32 or len(weight) > _FEW_ROWS else WIDE


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
    sizes = sizes or _wide_sizes(weight)
    channels = channels_of_tile(width, sizes.channels)
    parts, blocks = triton.cdiv(width, channels), triton.cdiv(tokens, sizes.tokens)
    steps = steps_per_program(blocks, sizes.programs)
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
    return of_span_key, of_weight, sum_programs(partial, weight.dtype)


def layer_gradients(
    of_logits: Tensor, query: Tensor, span_key: Tensor, span_bias: Tensor, weight: Tensor, of_query: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As `span_gradients`, for layers of any width."""
    gradients = span_gradients if is_narrow(weight) else product_gradients
    return gradients(of_logits, query, span_key, span_bias, weight, of_query)
