"""Dynamic convolution on a GPU: products of small bands of weights with values, on tensor cores.

A program computes 16 consecutive tokens of a head. Their weights are a band in the matrix [own tokens, near tokens]: an
entry is a weight where its near token is read by a tap of its own token, and zero elsewhere. The forward pass keeps the
softmax for the backward pass; the sign of a weight says whether its tap reads a token of the same text. Rounded weights
don't add up to one. What they lack is kept after the last tap, where the logits are padded: without it, the gradient of
the logit of a weight near one would be mostly rounding error.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.kernels.tiles import flat, same_text, text_rule

OWN = tl.constexpr(16)
"""The tokens of a program: the fewest rows of a matrix product, so that few of its weights are outside the band."""
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _tile(
    row_tokens,
    n_heads: tl.constexpr,
    radius: tl.constexpr,
    even: tl.constexpr,
    own_tokens: tl.constexpr,
    near_tokens: tl.constexpr,
):
    """The head and the start of the row of a program, its own tokens, those near them, and which of both are read."""
    tiles = tl.cdiv(row_tokens, own_tokens)
    head = tl.program_id(0) % n_heads
    tile = tl.program_id(0) // n_heads
    start = (tile % tiles) * own_tokens
    row = (tile // tiles).to(tl.int64) * row_tokens
    own = start + tl.arange(0, own_tokens)
    index = tl.arange(0, near_tokens)
    near = start + index - radius
    own_here = tl.full(own.shape, True, tl.int1) if even else own < row_tokens
    # The size of a tile is a power of two: its last rows are beyond all taps.
    return head, row, own, near, own_here, _is_below(near, row_tokens) & (index < own_tokens + 2 * radius)


@triton.jit
def _is_below(number, limit):
    """Whether 0 <= number < limit, by one comparison."""
    return number.to(tl.uint32) < limit


@triton.jit
def softmax_of_taps(scores, tap, taps: tl.constexpr, rounded: tl.constexpr, axis: tl.constexpr):
    """The weights in fp32, zero beyond the taps, and what they lack to one after rounding to this dtype."""
    scores = tl.where(tap < taps, scores, float("-inf"))
    weights = tl.exp2((scores - tl.max(scores, axis=axis, keep_dims=True)) * _LOG2_E)
    weights = weights * (1.0 / tl.sum(weights, axis=axis, keep_dims=True))
    return weights, 1.0 - tl.sum(weights.to(rounded).to(tl.float32), axis=axis, keep_dims=True)


@triton.jit
def _load(source, token, stride: tl.constexpr, here, each: tl.constexpr, block_each: tl.constexpr):
    """The channels of some tokens, zero if they are not ``here``."""
    channel = tl.arange(0, block_each)[None, :]
    return tl.load(source + token[:, None] * stride + channel, mask=here[:, None] & (channel < each), other=0.0)


@triton.jit
def _store(target, token, stride: tl.constexpr, here, tile, each: tl.constexpr, block_each: tl.constexpr):
    channel = tl.arange(0, block_each)[None, :]
    mask = here[:, None] & (channel < each)
    tl.store(target + token[:, None] * stride + channel, tile.to(target.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["row_tokens"])
def _dynamic_conv_forward_kernel(
    values,
    logits,
    texts,
    out,
    kept,
    row_tokens,
    value_stride: tl.constexpr,
    out_stride: tl.constexpr,
    n_heads: tl.constexpr,
    each: tl.constexpr,
    taps: tl.constexpr,
    padded: tl.constexpr,
    rule: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    block_each: tl.constexpr,
    block_taps: tl.constexpr,
    own_tokens: tl.constexpr,
    near_tokens: tl.constexpr,
):
    radius: tl.constexpr = taps // 2
    stride: tl.constexpr = n_heads * padded
    head, row, own, near, own_here, near_here = _tile(row_tokens, n_heads, radius, even, own_tokens, near_tokens)
    logits += row * stride + head * padded
    kept += row * stride + head * padded

    tap = tl.arange(0, block_taps)[None, :]
    places = own[:, None] * stride + tap
    written = own_here[:, None] & (tap < padded)
    scores = tl.load(logits + places, mask=written, other=0.0).to(tl.float32)
    # Before the first store, which the compiler would not move loads across.
    if rule > 0:
        near_here = near_here & (tl.load(texts + row + near, mask=near_here, other=0) != 0)
    near_values = _load(values + row * value_stride + head * each, near, value_stride, near_here, each, block_each)
    weights, lack = softmax_of_taps(scores, tap, taps, kept.dtype.element_ty, 1)
    if rule > 0:
        source = own[:, None] + tap - radius
        text = tl.load(texts + row + source, mask=_is_below(source, row_tokens) & (tap < taps), other=0)
        visible = text != 0
        if rule > 1:
            visible = same_text(text, tl.load(texts + row + own, mask=own_here, other=0)[:, None])
        weights = tl.where(visible, weights, -weights)
    weights = tl.where(tap == taps, lack, weights)
    tl.store(kept + places, weights.to(kept.dtype.element_ty), mask=written)

    tap = tl.arange(0, near_tokens)[None, :] - tl.arange(0, own_tokens)[:, None]
    is_tap = _is_below(tap, taps)
    # Threads exchange the weights of a row.
    band = tl.gather(weights.to(kept.dtype.element_ty), tl.where(is_tap, tap, 0), axis=1)
    band = tl.where(is_tap, band, 0.0)
    if rule > 1:
        band = tl.where(band > 0, band, 0.0)
    mixed = tl.dot(band.to(near_values.dtype), near_values, input_precision=precision)
    _store(out + row * out_stride + head * each, own, out_stride, own_here, mixed, each, block_each)


@triton.jit(do_not_specialize=["row_tokens"])
def _dynamic_conv_backward_kernel(
    grad,
    values,
    kept,
    grad_values,
    grad_logits,
    row_tokens,
    grad_stride: tl.constexpr,
    value_stride: tl.constexpr,
    written_stride: tl.constexpr,
    n_heads: tl.constexpr,
    each: tl.constexpr,
    taps: tl.constexpr,
    padded: tl.constexpr,
    signed: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    block_each: tl.constexpr,
    own_tokens: tl.constexpr,
    near_tokens: tl.constexpr,
):
    """Write the gradients of the own tokens' logits, from the values near them, and of their values."""
    radius: tl.constexpr = taps // 2
    stride: tl.constexpr = n_heads * padded
    head, row, own, near, own_here, near_here = _tile(row_tokens, n_heads, radius, even, own_tokens, near_tokens)
    grad += row * grad_stride + head * each
    kept += row * stride + head * padded
    grad_logits += row * stride + head * padded
    own_index, near_index = tl.arange(0, own_tokens)[:, None], tl.arange(0, near_tokens)[None, :]

    # All loads come before the first store, which the compiler would not move them across.
    tap = near_index - own_index
    places = own[:, None] * stride + tap
    weights = tl.load(kept + places, mask=_is_below(tap, taps) & own_here[:, None], other=0.0).to(tl.float32)
    total = 1.0 - tl.load(kept + own * stride + taps, mask=own_here, other=0.0).to(tl.float32)[:, None]
    near_values = _load(values + row * value_stride + head * each, near, value_stride, near_here, each, block_each)
    own_grad = _load(grad, own, grad_stride, own_here, each, block_each)
    # Near tokens whose taps read the own ones.
    reading_tap = own_index - near_index + 2 * radius
    is_tap = _is_below(reading_tap, taps) & near_here[None, :]
    reading = tl.load(kept + (near * stride)[None, :] + reading_tap, mask=is_tap, other=0.0)
    near_grad = _load(grad, near, grad_stride, near_here, each, block_each)

    of_weights = tl.dot(own_grad, tl.trans(near_values), input_precision=precision)
    # Also where there is no tap: what is near may be infinite.
    of_weights = tl.where(weights > 0, of_weights, 0.0)
    if signed:
        weights = tl.abs(weights)
    of_logits = weights * (total * of_weights - tl.sum(weights * of_weights, axis=1)[:, None])
    written = _is_below(tap, padded) & own_here[:, None]
    tl.store(grad_logits + places, of_logits.to(grad_logits.dtype.element_ty), mask=written)

    if signed:
        reading = tl.where(reading > 0, reading, 0.0)
    of_values = tl.dot(reading.to(near_grad.dtype), near_grad, input_precision=precision)
    target = grad_values + row * written_stride + head * each
    _store(target, own, written_stride, own_here, of_values, each, block_each)


def _numbers(values: Tensor, logits: Tensor, taps: int) -> tuple[tuple[int], dict[str, Any]]:
    """The grid, and what both kernels are told about the shapes."""
    (batch, tokens, width), (n_heads, padded) = values.shape, logits.shape[2:]
    settings = {
        "value_stride": values.stride(1),
        "n_heads": n_heads,
        "each": width // n_heads,
        "taps": taps,
        "padded": padded,
        "precision": "ieee" if values.dtype is torch.float32 else "tf32",
        "block_each": max(16, triton.next_power_of_2(width // n_heads)),
        "even": tokens % OWN.value == 0,
        "own_tokens": OWN.value,
        "near_tokens": triton.next_power_of_2(OWN.value + padded - 1),
        "num_warps": 1,
        "enable_fp_fusion": True,
    }
    return (batch * triton.cdiv(tokens, OWN.value) * n_heads,), settings


def forward(
    values: Tensor, logits: Tensor, texts: Tensor | None, taps: int, *, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The convolution, perhaps in given memory, and the signed softmax for the backward pass."""
    values, logits = flat(values), logits.contiguous()
    texts, rule = text_rule(texts)
    if out is None:
        out = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    kept = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    if out.numel():
        grid, settings = _numbers(values, logits, taps)
        _dynamic_conv_forward_kernel[grid](
            values,
            logits,
            texts,
            out,
            kept,
            values.shape[1],
            out_stride=out.stride(1),
            rule=rule,
            block_taps=triton.next_power_of_2(logits.shape[3]),
            **settings,
        )
    return out, kept


def backward(
    grad: Tensor, values: Tensor, kept: Tensor, taps: int, *, signed: bool, into: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradients of values, perhaps in given memory, and of logits; ``signed`` if the forward pass had texts."""
    grad, values = flat(grad), flat(values)
    if into is None:
        into = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    grad_logits = torch.empty(kept.shape, dtype=kept.dtype, device=kept.device)
    if grad.numel():
        grid, settings = _numbers(values, kept, taps)
        _dynamic_conv_backward_kernel[grid](
            grad,
            values,
            kept,
            into,
            grad_logits,
            values.shape[1],
            grad_stride=grad.stride(1),
            written_stride=into.stride(1),
            signed=signed,
            **settings,
        )
    return into, grad_logits
