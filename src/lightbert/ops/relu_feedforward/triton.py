"""The narrow feed-forward on a GPU: a program takes some tokens through both matmuls, in parts of the inner width.

The inner activations never leave the chip in the forward pass. The backward pass computes them again, and writes them
with their gradients for the gradients of the weights, which are ordinary matmuls.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.masked_tiles.triton import store
from lightbert.ops.partial_sums import triton as partial_sums

TOKENS, INNER, WARPS, STAGES = 128, 64, 8, 3
_WIDE_TOKENS, _WIDE_INNER = 32, 32
"""Smaller tiles for single precision, which takes twice the shared memory."""


@triton.jit
def _load_tile(source, place, within, even: tl.constexpr):
    """Numbers in their own dtype, for matmuls."""
    return tl.load(source + place) if even else tl.load(source + place, mask=within, other=0.0)


@triton.jit
def _relu_feedforward_kernel(
    x,
    up,
    up_bias,
    down,
    down_bias,
    scale,
    shift,
    out,
    unscaled,
    n_tokens,
    width: tl.constexpr,
    inner: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    block_tokens: tl.constexpr,
    block_inner: tl.constexpr,
    stages: tl.constexpr,
):
    token = tl.program_id(0) * block_tokens + tl.arange(0, block_tokens)
    channel = tl.arange(0, width)
    within = (token < n_tokens)[:, None] & (channel >= 0)[None, :]
    place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
    tile = _load_tile(x, place, within, even)
    change = tl.zeros((block_tokens, width), tl.float32)
    for start in tl.range(0, inner, block_inner, num_stages=stages):
        part = start + tl.arange(0, block_inner)
        rows = tl.load(up + part[:, None] * width + channel[None, :])
        u = tl.dot(tile, tl.trans(rows), input_precision=precision) + tl.load(up_bias + part).to(tl.float32)[None, :]
        columns = tl.load(down + channel[:, None] * inner + part[None, :])
        change = tl.dot(tl.maximum(u, 0.0).to(tile.dtype), tl.trans(columns), change, input_precision=precision)
    change += tile.to(tl.float32) + tl.load(down_bias + channel).to(tl.float32)[None, :]
    store(unscaled, place, change, within, even)
    change = (
        change * tl.load(scale + channel).to(tl.float32)[None, :] + tl.load(shift + channel).to(tl.float32)[None, :]
    )
    store(out, place, change, within, even)


@triton.jit
def _relu_feedforward_backward_kernel(
    grad,
    x,
    unscaled,
    up,
    up_bias,
    scaled_down,
    scale,
    grad_x,
    activated,
    grad_inner,
    partial,
    n_tokens,
    width: tl.constexpr,
    inner: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    block_tokens: tl.constexpr,
    block_inner: tl.constexpr,
    stages: tl.constexpr,
):
    """Write the gradients of x and of the inner layer, the inner activations, and sums over this program's tokens.

    The sums are the gradients of the scale, of the shift and of the first bias.
    """
    token = tl.program_id(0) * block_tokens + tl.arange(0, block_tokens)
    channel = tl.arange(0, width)
    exists = token < n_tokens
    within = exists[:, None] & (channel >= 0)[None, :]
    place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
    tile = _load_tile(x, place, within, even)
    of_out = _load_tile(grad, place, within, even)
    of_x = of_out.to(tl.float32)
    partial += tl.program_id(0).to(tl.int64) * (2 * width + inner)
    tl.store(partial + channel, tl.sum(of_x * _load_tile(unscaled, place, within, even).to(tl.float32), axis=0))
    tl.store(partial + width + channel, tl.sum(of_x, axis=0))
    of_x *= tl.load(scale + channel).to(tl.float32)[None, :]
    for start in tl.range(0, inner, block_inner, num_stages=stages):
        part = start + tl.arange(0, block_inner)
        rows = tl.load(up + part[:, None] * width + channel[None, :])
        columns = tl.load(scaled_down + channel[:, None] * inner + part[None, :])
        u = tl.dot(tile, tl.trans(rows), input_precision=precision)
        of_u = tl.dot(of_out, columns, input_precision=precision)
        u += tl.load(up_bias + part).to(tl.float32)[None, :]
        of_u = tl.where(u > 0, of_u, 0.0)
        inner_place = (token.to(tl.int64) * inner)[:, None] + part[None, :]
        inner_within = exists[:, None] & (part >= 0)[None, :]
        store(activated, inner_place, tl.maximum(u, 0.0), inner_within, even)
        store(grad_inner, inner_place, of_u, inner_within, even)
        tl.store(partial + 2 * width + part, tl.sum(of_u, axis=0))
        of_x = tl.dot(of_u.to(tile.dtype), rows, of_x, input_precision=precision)
    store(grad_x, place, of_x, within, even)


def _settings(x: Tensor, inner: int, block_tokens: int, block_inner: int) -> dict[str, int | bool | str]:
    """What both kernels are compiled for."""
    wide = x.dtype is torch.float32
    tokens = min(block_tokens, _WIDE_TOKENS) if wide else block_tokens
    part = min(block_inner, _WIDE_INNER) if wide else block_inner
    return {
        "width": x.shape[-1],
        "inner": inner,
        "even": (x.numel() // x.shape[-1]) % tokens == 0,
        "precision": "ieee" if wide else "tf32",
        "block_tokens": tokens,
        "block_inner": math.gcd(part, inner),
        "enable_fp_fusion": True,
    }


def forward(
    x: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    down_bias: Tensor,
    scale: Tensor,
    shift: Tensor,
    *,
    block_tokens: int = TOKENS,
    block_inner: int = INNER,
    warps: int = WARPS,
    stages: int = STAGES,
) -> tuple[Tensor, Tensor]:
    """The result, and the sum before its scale, in the dtype of x."""
    out, unscaled = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2))
    if out.numel():
        chosen = _settings(x, len(up), block_tokens, block_inner)
        tokens = x.numel() // x.shape[-1]
        _relu_feedforward_kernel[(triton.cdiv(tokens, int(chosen["block_tokens"])),)](
            x.contiguous(),
            up.contiguous(),
            up_bias.contiguous(),
            down.contiguous(),
            down_bias.contiguous(),
            scale.contiguous(),
            shift.contiguous(),
            out,
            unscaled,
            tokens,
            stages=stages,
            num_warps=warps,
            **chosen,
        )
    return out, unscaled


def backward(
    grad: Tensor,
    x: Tensor,
    unscaled: Tensor,
    up: Tensor,
    up_bias: Tensor,
    scaled_down: Tensor,
    scale: Tensor,
    *,
    block_tokens: int = TOKENS,
    block_inner: int = INNER,
    warps: int = WARPS,
    stages: int = STAGES,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradient of x, the inner activations, their gradient, and sums over all tokens.

    scaled_down: the second weight, each row times its scale. The sums are the gradients of the scale, of the shift and
    of the first bias, one after the other, in float32.
    """
    width, inner = x.shape[-1], len(up)
    chosen = _settings(x, inner, block_tokens, block_inner)
    tokens = x.numel() // width
    programs = triton.cdiv(tokens, int(chosen["block_tokens"]))
    of_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    wide = (*x.shape[:-1], inner)
    activated, of_inner = (torch.empty(wide, dtype=x.dtype, device=x.device) for _ in range(2))
    partial = torch.empty((programs, 2 * width + inner), dtype=torch.float32, device=x.device)
    if tokens:
        _relu_feedforward_backward_kernel[(programs,)](
            grad.contiguous(),
            x.contiguous(),
            unscaled,
            up.contiguous(),
            up_bias.contiguous(),
            scaled_down.contiguous(),
            scale.contiguous(),
            of_x,
            activated,
            of_inner,
            partial,
            tokens,
            stages=stages,
            num_warps=warps,
            **chosen,
        )
    return of_x, activated, of_inner, partial_sums.sum_programs(partial, torch.float32)
