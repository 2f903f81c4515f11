"""Dynamic convolution on a GPU: a block of tokens and one head per program, as two small matrix products.

A program holds the square of weights between ``block`` consecutive tokens, zero outside the band of K taps, and
multiplies it by their values. The rows of the batch follow each other as one sequence of B·T tokens; a tap that leaves
its row is masked like one that leaves its text. The outermost K//2 tokens on both sides of a block are read only: every
token is written by the one program that holds its whole window. The backward pass computes the softmax again.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.flat_tokens import flat, text_rule

BLOCK, WARPS = 64, 4


@triton.jit
def _band(
    logits,
    texts,
    tile,
    real,
    row_tokens,
    head,
    n_heads: tl.constexpr,
    taps: tl.constexpr,
    rule: tl.constexpr,
):
    """Taps and logits between tokens [block, block], -inf outside the band; and which of them read a real token."""
    tap = tile[None, :] - tile[:, None] + taps // 2
    inside = (tap >= 0) & (tap < taps) & real[:, None]
    place = (tile.to(tl.int64) * n_heads + head) * taps
    scores = tl.load(logits + place[:, None] + tap, mask=inside, other=float("-inf")).to(tl.float32)
    row = tile // row_tokens
    reads = inside & (row[:, None] == row[None, :]) & real[None, :]
    if rule > 0:
        text = tl.load(texts + tile, mask=real, other=0)
        reads = reads & (text != 0)[None, :]
        if rule > 1:
            reads = reads & (text[:, None] == text[None, :])
    return tap, inside, scores, reads


@triton.jit
def _dynamic_conv_forward_kernel(
    values,
    logits,
    texts,
    out,
    n_tokens,
    row_tokens,
    value_stride,
    out_stride,
    n_heads: tl.constexpr,
    each: tl.constexpr,
    taps: tl.constexpr,
    rule: tl.constexpr,
    precision: tl.constexpr,
    block: tl.constexpr,
    block_each: tl.constexpr,
):
    radius: tl.constexpr = taps // 2
    head = tl.program_id(0) % n_heads
    index = tl.arange(0, block)
    tile = (tl.program_id(0) // n_heads) * (block - 2 * radius) - radius + index
    real = (tile >= 0) & (tile < n_tokens)
    channel = tl.arange(0, block_each)
    place = head * each + channel
    within = real[:, None] & (channel < each)[None, :]
    value = tl.load(values + (tile.to(tl.int64) * value_stride)[:, None] + place[None, :], mask=within, other=0.0)

    _, _, scores, reads = _band(logits, texts, tile, real, row_tokens, head, n_heads, taps, rule)
    highest = tl.where(real, tl.max(scores, axis=1), 0.0)
    weights = tl.exp(scores - highest[:, None])
    total = tl.where(real, tl.sum(weights, axis=1), 1.0)
    weights = tl.where(reads, weights / total[:, None], 0.0)

    mixed = tl.dot(weights.to(value.dtype), value, input_precision=precision)
    owned = (index >= radius) & (index < block - radius)
    target = out + (tile.to(tl.int64) * out_stride)[:, None] + place[None, :]
    tl.store(target, mixed.to(value.dtype), mask=within & owned[:, None])


@triton.jit
def _dynamic_conv_backward_kernel(
    grad,
    values,
    logits,
    texts,
    grad_values,
    grad_logits,
    n_tokens,
    row_tokens,
    grad_stride,
    value_stride,
    out_stride,
    n_heads: tl.constexpr,
    each: tl.constexpr,
    taps: tl.constexpr,
    rule: tl.constexpr,
    precision: tl.constexpr,
    block: tl.constexpr,
    block_each: tl.constexpr,
    block_taps: tl.constexpr,
):
    radius: tl.constexpr = taps // 2
    head = tl.program_id(0) % n_heads
    index = tl.arange(0, block)
    tile = (tl.program_id(0) // n_heads) * (block - 2 * radius) - radius + index
    real = (tile >= 0) & (tile < n_tokens)
    channel = tl.arange(0, block_each)
    place = head * each + channel
    within = real[:, None] & (channel < each)[None, :]
    token = tile.to(tl.int64)
    value = tl.load(values + (token * value_stride)[:, None] + place[None, :], mask=within, other=0.0)
    change = tl.load(grad + (token * grad_stride)[:, None] + place[None, :], mask=within, other=0.0)

    # The outermost tokens have taps beyond the block, so the normaliser is computed from all taps apart.
    every_tap = tl.arange(0, block_taps)
    row_start = (token * n_heads + head) * taps
    all_scores = tl.load(
        logits + row_start[:, None] + every_tap[None, :],
        mask=real[:, None] & (every_tap < taps)[None, :],
        other=float("-inf"),
    ).to(tl.float32)
    highest = tl.where(real, tl.max(all_scores, axis=1), 0.0)
    total = tl.where(real, tl.sum(tl.exp(all_scores - highest[:, None]), axis=1), 1.0)

    tap, inside, scores, reads = _band(logits, texts, tile, real, row_tokens, head, n_heads, taps, rule)
    weights = tl.exp(scores - highest[:, None]) / total[:, None]
    owned = (index >= radius) & (index < block - radius)

    read_weights = tl.where(reads, weights, 0.0).to(value.dtype)
    of_values = tl.dot(tl.trans(read_weights), change, input_precision=precision)
    target = grad_values + (token * out_stride)[:, None] + place[None, :]
    tl.store(target, of_values.to(value.dtype), mask=within & owned[:, None])

    of_weights = tl.where(reads, tl.dot(change, tl.trans(value), input_precision=precision), 0.0)
    shared = tl.sum(weights * of_weights, axis=1)
    of_logits = weights * (of_weights - shared[:, None])
    target = grad_logits + row_start[:, None] + tap
    tl.store(target, of_logits.to(grad_logits.dtype.element_ty), mask=inside & owned[:, None])


def _numbers(values: Tensor, logits: Tensor, block: int) -> tuple[tuple[int], dict[str, object]]:
    """The grid, and what both kernels are told about the shapes."""
    n_heads, taps = logits.shape[2:]
    each = values.shape[-1] // n_heads
    tiles = triton.cdiv(values.shape[0] * values.shape[1], block - 2 * (taps // 2))
    exact = values.dtype is torch.float32
    settings = {
        "n_heads": n_heads,
        "each": each,
        "taps": taps,
        "precision": "ieee" if exact else "tf32",
        "block": block,
        "block_each": max(16, triton.next_power_of_2(each)),
    }
    return (tiles * n_heads,), settings


def forward(values: Tensor, logits: Tensor, texts: Tensor | None, *, block: int = BLOCK, warps: int = WARPS) -> Tensor:
    """The convolution, by blocks of a chosen size."""
    values, logits = flat(values), logits.contiguous()
    texts, rule = text_rule(texts)
    out = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    if out.numel():
        grid, settings = _numbers(values, logits, block)
        batch, tokens, width = values.shape
        _dynamic_conv_forward_kernel[grid](
            values,
            logits,
            texts,
            out,
            batch * tokens,
            tokens,
            values.stride(1),
            width,
            rule=rule,
            num_warps=warps,
            enable_fp_fusion=True,
            **settings,
        )
    return out


def backward(
    grad: Tensor, values: Tensor, logits: Tensor, texts: Tensor | None, *, block: int = BLOCK, warps: int = WARPS
) -> tuple[Tensor, Tensor]:
    """The gradients of values and logits, by blocks of a chosen size."""
    grad, values, logits = flat(grad), flat(values), logits.contiguous()
    texts, rule = text_rule(texts)
    grad_values = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    grad_logits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    if grad.numel():
        grid, settings = _numbers(values, logits, block)
        batch, tokens, width = values.shape
        _dynamic_conv_backward_kernel[grid](
            grad,
            values,
            logits,
            texts,
            grad_values,
            grad_logits,
            batch * tokens,
            tokens,
            grad.stride(1),
            values.stride(1),
            width,
            rule=rule,
            block_taps=triton.next_power_of_2(logits.shape[-1]),
            num_warps=warps,
            enable_fp_fusion=True,
            **settings,
        )
    return grad_values, grad_logits
