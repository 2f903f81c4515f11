"""The kernel layer of span-based convolution on a GPU: a linear layer of the product of queries and span-aware keys.

The product exists in registers only, in the forward pass and again in the backward pass, which also sums the gradients
of the layer's parameters in two stages, per program and then over programs, in a fixed order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.flat_tokens import flat
from lightbert.ops.masked_tiles.triton import load, store
from lightbert.ops.partial_sums import triton as partial_sums

Forward = tuple[int, int]
"""The tokens and warps of a program."""
Backward = tuple[int, int, int | None, int]
"""The same, the most registers of a thread, and the most programs: each writes a gradient of the whole weight."""
_FORWARD: Forward = (128, 4)
_BACKWARD: Backward = (16, 4, 128, 512)
"""With an explicit limit of registers the compiler starts all loads of a thread first."""
_LARGE_FORWARD: Forward = (64, 8)
_LARGE_BACKWARD: Backward = (32, 8, None, 256)
"""For layers of many rows and for float32, where the other sizes don't leave enough registers to a thread."""
_MOST_CHANNELS, _MOST_ROWS, _LARGE_ROWS = 128, 128, 64


@triton.jit(do_not_specialize=["n_tokens"])
def _span_logits_kernel(
    query,
    span_key,
    weight,
    bias,
    logits,
    n_tokens,
    query_stride: tl.constexpr,
    key_stride: tl.constexpr,
    width: tl.constexpr,
    rows: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
    block_rows: tl.constexpr,
):
    token = (tl.program_id(0) * block_tokens + tl.arange(0, block_tokens)).to(tl.int64)[:, None]
    channel = tl.arange(0, block_channels)[None, :]
    row = tl.arange(0, block_rows)
    within = (token < n_tokens) & (channel < width)
    q = load(query, token * query_stride + channel, within, even)
    k = load(span_key, token * key_stride + channel, within, even)
    w = tl.load(weight + row[:, None] * width + channel, mask=(row < rows)[:, None] & (channel < width), other=0.0)
    total = tl.dot((q * k).to(w.dtype), tl.trans(w), input_precision=precision)
    total += tl.load(bias + row, mask=row < rows, other=0.0).to(tl.float32)[None, :]
    place = token * rows + row[None, :]
    tl.store(logits + place, total.to(logits.dtype.element_ty), mask=(token < n_tokens) & (row < rows)[None, :])


@triton.jit(do_not_specialize=["n_tokens"])
def _span_gradients_kernel(
    of_logits,
    query,
    span_key,
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
    """Add to the gradient of the queries, write that of the keys, and those of weight and bias by these tokens."""
    program = tl.program_id(0)
    channel = tl.arange(0, block_channels)[None, :]
    row = tl.arange(0, block_rows)
    in_weight = (row < rows)[:, None] & (channel < width)
    w = tl.load(weight + row[:, None] * width + channel, mask=in_weight, other=0.0)
    of_weight = tl.zeros((block_rows, block_channels), tl.float32)
    of_bias = tl.zeros((block_rows,), tl.float32)
    for step in range(steps):
        first = (program * steps + step) * block_tokens
        token = (first + tl.arange(0, block_tokens)).to(tl.int64)[:, None]
        within = (token < n_tokens) & (channel < width)
        in_logits = (token < n_tokens) & (row < rows)[None, :]
        change = tl.load(of_logits + token * rows + row[None, :], mask=in_logits, other=0.0)
        q = load(query, token * query_stride + channel, within, even)
        k = load(span_key, token * key_stride + channel, within, even)
        of_query_place = token * of_query_stride + channel
        q_change = load(of_query, of_query_place, within, even)
        of_span = tl.dot(change, w, input_precision=precision)
        store(of_query, of_query_place, q_change + of_span * k, within, even)
        store(of_span_key, token * width + channel, of_span * q, within, even)
        of_weight = tl.dot(tl.trans(change), (q * k).to(change.dtype), of_weight, input_precision=precision)
        of_bias += tl.sum(change.to(tl.float32), axis=0)
    # The gradients of the weight [rows, width], then those of the bias.
    partial += program.to(tl.int64) * (rows * (width + 1))
    tl.store(partial + row[:, None] * width + channel, of_weight, mask=in_weight)
    tl.store(partial + rows * width + row, of_bias, mask=row < rows)


def fits(weight: Tensor) -> bool:
    """Whether the kernels take a layer with this weight; with more than one block of channels they are slower."""
    rows, width = weight.shape
    return width <= _MOST_CHANNELS and rows <= _MOST_ROWS


def _is_large(weight: Tensor) -> bool:
    return weight.dtype is torch.float32 or len(weight) > _LARGE_ROWS


def _settings(query: Tensor, span_key: Tensor, weight: Tensor, block_tokens: int, warps: int) -> dict[str, object]:
    """What both kernels are told about the shapes."""
    rows, width = weight.shape
    channels = max(16, triton.next_power_of_2(width))
    return {
        "query_stride": query.stride(1),
        "key_stride": span_key.stride(1),
        "width": width,
        "rows": rows,
        "even": query.shape[:2].numel() % block_tokens == 0 and width == channels,
        "precision": "ieee" if query.dtype is torch.float32 else "tf32",
        "block_tokens": block_tokens,
        "block_channels": channels,
        "block_rows": max(16, triton.next_power_of_2(rows)),
        "num_warps": warps,
        "num_stages": 2,
        "enable_fp_fusion": True,
    }


def span_logits(
    query: Tensor, span_key: Tensor, weight: Tensor, bias: Tensor, *, sizes: Forward | None = None
) -> Tensor:
    """The kernel layer with ``weight`` [rows, a] and ``bias`` [rows] on query · span_key [B, T, a]: [B, T, rows]."""
    query, span_key, weight = flat(query), flat(span_key), weight.contiguous()
    logits = torch.empty((*query.shape[:2], len(weight)), dtype=query.dtype, device=query.device)
    if logits.numel():
        tokens = query.shape[:2].numel()
        block_tokens, warps = sizes or (_LARGE_FORWARD if _is_large(weight) else _FORWARD)
        settings = _settings(query, span_key, weight, block_tokens, warps)
        _span_logits_kernel[(triton.cdiv(tokens, block_tokens),)](
            query, span_key, weight, bias.contiguous(), logits, tokens, **settings
        )
    return logits


def span_gradients(
    of_logits: Tensor,
    query: Tensor,
    span_key: Tensor,
    weight: Tensor,
    of_query: Tensor,
    *,
    sizes: Backward | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of span_key, and of weight and bias, flat and one after the other.

    That of the query is added to ``of_query``, in place.
    """
    query, span_key, weight, of_logits = flat(query), flat(span_key), weight.contiguous(), of_logits.contiguous()
    rows, width = weight.shape
    tokens = query.shape[:2].numel()
    block_tokens, warps, registers, most = sizes or (_LARGE_BACKWARD if _is_large(weight) else _BACKWARD)
    blocks = triton.cdiv(tokens, block_tokens)
    steps = partial_sums.steps_per_program(blocks, most)
    programs = triton.cdiv(blocks, steps)
    of_span_key = torch.empty(span_key.shape, dtype=span_key.dtype, device=span_key.device)
    partial = torch.empty((programs, rows * (width + 1)), dtype=torch.float32, device=query.device)
    if tokens:
        _span_gradients_kernel[(programs,)](
            *(of_logits, query, span_key, weight, of_query, of_span_key, partial, tokens),
            of_query_stride=of_query.stride(1),
            steps=steps,
            maxnreg=registers,
            **_settings(query, span_key, weight, block_tokens, warps),
        )
    return of_span_key, partial_sums.sum_programs(partial, weight.dtype)
