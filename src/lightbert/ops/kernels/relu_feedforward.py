"""The narrow feed-forward on a GPU: a program takes some tokens through both matmuls, in parts of the inner width.

The inner activations never leave the chip: the forward pass keeps one bit of each, whether it is positive. The backward
pass has one kernel for the gradient of the input, which needs no more than that, and others for the gradients of the
weights, which compute the activations again: a program takes some inner channels through all four matmuls, over some
tokens, and adds up in registers; a second kernel adds up the programs' sums.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.kernels.tiles import load, load_operand, steps_per_program, store, sum_programs


@dataclass(frozen=True)
class Blocks:
    """The size of the tiles of one kernel."""

    tokens: int
    inner: int
    warps: int
    stages: int


FORWARD = Blocks(64, 64, 4, 3)
OF_INPUT = Blocks(128, 32, 4, 3)
"""For the gradient of the input."""
_WIDE_TOKENS, _WIDE_INNER = 32, 32
"""Smaller tiles for single precision, which takes twice the shared memory."""
_WORD = 32


@triton.jit
def _pack(bits, word: tl.constexpr):
    """Booleans [M, N] as integers [M, N / word] of ``word`` bits each."""
    apart = tl.reshape(bits.to(tl.int32), (bits.shape[0], bits.shape[1] // word, word))
    return tl.sum(apart << tl.arange(0, word)[None, None, :], axis=2)


@triton.jit
def _unpack(words, word: tl.constexpr):
    """The inverse of :func:`_pack`."""
    bits = (words[:, :, None] >> tl.arange(0, word)[None, None, :]) & 1
    return tl.reshape(bits, (words.shape[0], words.shape[1] * word)) != 0


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
    positive,
    n_tokens,
    width: tl.constexpr,
    inner: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    block_tokens: tl.constexpr,
    block_inner: tl.constexpr,
    word: tl.constexpr,
    stages: tl.constexpr,
):
    """Write the result, and which inner activations are positive: [inner / word, tokens] integers of ``word`` bits."""
    token = tl.program_id(0) * block_tokens + tl.arange(0, block_tokens)
    channel = tl.arange(0, width)
    exists = token < n_tokens
    within = exists[:, None] & (channel >= 0)[None, :]
    place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
    tile = load_operand(x, place, within, even)
    change = tl.zeros((block_tokens, width), tl.float32)
    for start in tl.range(0, inner, block_inner, num_stages=stages):
        part = start + tl.arange(0, block_inner)
        rows = tl.load(up + part[:, None] * width + channel[None, :])
        u = tl.dot(tile, tl.trans(rows), input_precision=precision) + tl.load(up_bias + part).to(tl.float32)[None, :]
        words = start // word + tl.arange(0, block_inner // word)
        words_place = words.to(tl.int64)[None, :] * n_tokens + token[:, None]
        store(positive, words_place, _pack(u > 0, word), exists[:, None] & (words >= 0)[None, :], even)
        columns = tl.load(down + channel[:, None] * inner + part[None, :])
        change = tl.dot(tl.maximum(u, 0.0).to(tile.dtype), tl.trans(columns), change, input_precision=precision)
    change += tile.to(tl.float32) + tl.load(down_bias + channel).to(tl.float32)[None, :]
    change = (
        change * tl.load(scale + channel).to(tl.float32)[None, :] + tl.load(shift + channel).to(tl.float32)[None, :]
    )
    store(out, place, change, within, even)


@triton.jit
def _relu_feedforward_inputs_kernel(
    grad,
    x,
    positive,
    up,
    scaled_down,
    scale,
    grad_x,
    partial,
    n_tokens,
    width: tl.constexpr,
    inner: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    block_tokens: tl.constexpr,
    block_inner: tl.constexpr,
    word: tl.constexpr,
    stages: tl.constexpr,
):
    """Write the gradient of x, and two sums over this program's tokens: of grad · x and of grad."""
    token = tl.program_id(0) * block_tokens + tl.arange(0, block_tokens)
    channel = tl.arange(0, width)
    exists = token < n_tokens
    within = exists[:, None] & (channel >= 0)[None, :]
    place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
    of_out = load_operand(grad, place, within, even)
    of_x = of_out.to(tl.float32)
    partial += tl.program_id(0).to(tl.int64) * (2 * width)
    tl.store(partial + channel, tl.sum(of_x * load(x, place, within, even), axis=0))
    tl.store(partial + width + channel, tl.sum(of_x, axis=0))
    of_x *= tl.load(scale + channel).to(tl.float32)[None, :]
    for start in tl.range(0, inner, block_inner, num_stages=stages):
        part = start + tl.arange(0, block_inner)
        columns = tl.load(scaled_down + channel[:, None] * inner + part[None, :])
        of_u = tl.dot(of_out, columns, input_precision=precision)
        words = start // word + tl.arange(0, block_inner // word)
        words_place = words.to(tl.int64)[None, :] * n_tokens + token[:, None]
        bits = load_operand(positive, words_place, exists[:, None] & (words >= 0)[None, :], even)
        of_u = tl.where(_unpack(bits, word), of_u, 0.0)
        rows = tl.load(up + part[:, None] * width + channel[None, :])
        of_x = tl.dot(of_u.to(of_out.dtype), rows, of_x, input_precision=precision)
    store(grad_x, place, of_x, within, even)


def word_bits(inner: int) -> int:
    """The number of activations per integer that says which are positive."""
    return math.gcd(_WORD, inner)


def settings(x: Tensor, inner: int, blocks: Blocks) -> dict[str, Any]:
    """What the kernels are compiled for."""
    wide = x.dtype is torch.float32
    tokens = min(blocks.tokens, _WIDE_TOKENS) if wide else blocks.tokens
    part = min(blocks.inner, _WIDE_INNER) if wide else blocks.inner
    return {
        "width": x.shape[-1],
        "inner": inner,
        "even": (x.numel() // x.shape[-1]) % tokens == 0,
        "precision": "ieee" if wide else "tf32",
        "block_tokens": tokens,
        "block_inner": math.gcd(part, inner),
        "stages": blocks.stages,
        "num_warps": blocks.warps,
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
    blocks: Blocks = FORWARD,
) -> tuple[Tensor, Tensor]:
    """The result in the dtype of x, and which inner activations are positive, as integers of `word_bits` bits."""
    tokens, inner = x.numel() // x.shape[-1], len(up)
    word = word_bits(inner)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    positive = torch.empty((inner // word, tokens), dtype=torch.int32, device=x.device)
    if tokens:
        chosen = settings(x, inner, blocks)
        _relu_feedforward_kernel[(triton.cdiv(tokens, chosen["block_tokens"]),)](
            x.contiguous(),
            up.contiguous(),
            up_bias.contiguous(),
            down.contiguous(),
            down_bias.contiguous(),
            scale.contiguous(),
            shift.contiguous(),
            out,
            positive,
            tokens,
            word=word,
            **chosen,
        )
    return out, positive


def backward(
    grad: Tensor,
    x: Tensor,
    positive: Tensor,
    up: Tensor,
    scaled_down: Tensor,
    scale: Tensor,
    *,
    more_rows: int = 0,
    blocks: Blocks = OF_INPUT,
) -> tuple[Tensor, Tensor]:
    """The gradient of x, and two sums over the tokens of each program [programs, 2, D]: of grad · x and of grad.

    scaled_down: the second weight, each row times its scale.
    more_rows: number of rows after those of the programs, which are left empty.
    """
    width, inner = x.shape[-1], len(up)
    chosen = settings(x, inner, blocks)
    tokens = x.numel() // width
    programs = triton.cdiv(tokens, chosen["block_tokens"])
    of_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    partial = torch.empty((programs + more_rows, 2, width), dtype=torch.float32, device=x.device)
    if tokens:
        _relu_feedforward_inputs_kernel[(programs,)](
            grad.contiguous(),
            x.contiguous(),
            positive,
            up.contiguous(),
            scaled_down.contiguous(),
            scale.contiguous(),
            of_x,
            partial,
            tokens,
            word=word_bits(inner),
            **chosen,
        )
    return of_x, partial


OF_WEIGHTS = Blocks(64, 128, 8, 3)
PARTS = 32
"""The most parts of the tokens: with four programs each, as many as a GPU has processors."""
ROWS, SUM_WARPS, SUM_REGISTERS = 4, 8, 168
"""Inner channels per program of the second kernel; with this limit the compiler starts all loads of a thread first."""


@triton.jit
def _relu_feedforward_weights_kernel(
    grad,
    x,
    up,
    up_bias,
    scaled_down,
    partial,
    partial_bias,
    n_tokens,
    width: tl.constexpr,
    inner: tl.constexpr,
    even: tl.constexpr,
    precision: tl.constexpr,
    block_tokens: tl.constexpr,
    block_inner: tl.constexpr,
    steps: tl.constexpr,
    stages: tl.constexpr,
):
    """Write the gradients of some rows of both weights, [2, inner, width], and of the first bias, over some tokens.

    Tiles are [inner, tokens]: both results of a tile are left operands of the next products as they are.
    """
    part = tl.program_id(0) * block_inner + tl.arange(0, block_inner)
    channel = tl.arange(0, width)
    of_weight = part[:, None] * width + channel[None, :]
    rows = tl.load(up + of_weight)
    columns = tl.load(scaled_down + channel[None, :] * inner + part[:, None])
    bias = tl.load(up_bias + part).to(tl.float32)
    of_up = tl.zeros((block_inner, width), tl.float32)
    of_down = tl.zeros((block_inner, width), tl.float32)
    of_bias = tl.zeros((block_inner,), tl.float32)
    for step in tl.range(steps, num_stages=stages):
        token = (tl.program_id(1) * steps + step) * block_tokens + tl.arange(0, block_tokens)
        within = (token < n_tokens)[:, None] & (channel >= 0)[None, :]
        place = (token.to(tl.int64) * width)[:, None] + channel[None, :]
        tile = load_operand(x, place, within, even)
        of_out = load_operand(grad, place, within, even)
        u = tl.dot(rows, tl.trans(tile), input_precision=precision) + bias[:, None]
        of_u = tl.dot(columns, tl.trans(of_out), input_precision=precision)
        of_u = tl.where(u > 0, of_u, 0.0)
        of_bias += tl.sum(of_u, axis=1)
        of_up = tl.dot(of_u.to(tile.dtype), tile, of_up, input_precision=precision)
        of_down = tl.dot(tl.maximum(u, 0.0).to(tile.dtype), of_out, of_down, input_precision=precision)
    program = tl.program_id(1).to(tl.int64)
    tl.store(partial + program * (2 * inner * width) + of_weight, of_up)
    tl.store(partial + (2 * program + 1) * (inner * width) + of_weight, of_down)
    tl.store(partial_bias + program * inner + part, of_bias)


@triton.jit
def _relu_feedforward_sums_kernel(
    partial,
    partial_bias,
    down,
    scale,
    grad_up,
    grad_up_bias,
    grad_down,
    of_scale,
    parts,
    width: tl.constexpr,
    inner: tl.constexpr,
    lanes: tl.constexpr,
    rows: tl.constexpr,
):
    """Add up some inner channels of all parts; write the gradients, and a share of that of the scale, [2, width]."""
    lane = tl.arange(0, lanes)
    entry = tl.arange(0, rows * width)
    first = tl.program_id(0) * rows
    part = first + tl.arange(0, rows)
    source = partial + lane.to(tl.int64)[:, None] * (2 * inner * width) + first * width + entry[None, :]
    exists = (lane < parts)[:, None]
    within = exists & (entry >= 0)[None, :]
    of_up = tl.sum(tl.load(source, mask=within, other=0.0), axis=0)
    of_down = tl.sum(tl.load(source + inner * width, mask=within, other=0.0), axis=0)
    tl.store(grad_up + first * width + entry, of_up.to(grad_up.dtype.element_ty))
    bias_place = partial_bias + lane[:, None] * inner + part[None, :]
    of_bias = tl.sum(tl.load(bias_place, mask=exists & (part >= 0)[None, :], other=0.0), axis=0)
    tl.store(grad_up_bias + part, of_bias.to(grad_up_bias.dtype.element_ty))
    of_down = tl.reshape(of_down, (rows, width))
    channel = tl.arange(0, width)
    place = channel[None, :] * inner + part[:, None]
    share = tl.sum(of_down * tl.load(down + place).to(tl.float32), axis=0)
    of_down *= tl.load(scale + channel).to(tl.float32)[None, :]
    tl.store(grad_down + place, of_down.to(grad_down.dtype.element_ty))
    of_scale += tl.program_id(0) * (2 * width)
    tl.store(of_scale + channel, share)
    tl.store(of_scale + width + channel, tl.zeros((width,), tl.float32))


def weight_gradients(
    grad: Tensor,
    x: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    scaled_down: Tensor,
    scale: Tensor,
    of_scale: Tensor,
    *,
    blocks: Blocks = OF_WEIGHTS,
    most_parts: int = PARTS,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the first weight, of its bias and of the second weight, each in the dtype of its parameter.

    of_scale [`scale_shares`, 2, D]: gets shares of the gradient of the scale; the second rows get zeros.
    """
    width, inner = x.shape[-1], len(up)
    tokens = x.numel() // width
    chosen = settings(x, inner, blocks)
    tiles = triton.cdiv(tokens, chosen["block_tokens"])
    steps = steps_per_program(tiles, most_parts)
    parts = triton.cdiv(tiles, steps)
    chosen["even"] = tokens % (chosen["block_tokens"] * steps) == 0
    partial = torch.empty((parts, 2, inner, width), dtype=torch.float32, device=x.device)
    partial_bias = torch.empty((parts, inner), dtype=torch.float32, device=x.device)
    up, down = up.contiguous(), down.contiguous()
    if tokens:
        _relu_feedforward_weights_kernel[(inner // chosen["block_inner"], parts)](
            grad.contiguous(),
            x.contiguous(),
            up,
            up_bias.contiguous(),
            scaled_down.contiguous(),
            partial,
            partial_bias,
            tokens,
            steps=steps,
            **chosen,
        )
    of_up, of_up_bias, of_down = (torch.empty_like(parameter) for parameter in (up, up_bias, down))
    _relu_feedforward_sums_kernel[(scale_shares(inner),)](
        partial,
        partial_bias,
        down,
        scale.contiguous(),
        of_up,
        of_up_bias,
        of_down,
        of_scale,
        parts,
        width=width,
        inner=inner,
        lanes=triton.next_power_of_2(max(parts, 1)),
        rows=ROWS,
        num_warps=SUM_WARPS,
        maxnreg=SUM_REGISTERS,
        enable_fp_fusion=True,
    )
    return of_up, of_up_bias, of_down


def scale_shares(inner: int) -> int:
    """The number of shares of the gradient of the scale."""
    return inner // ROWS


def all_gradients(
    grad: Tensor,
    x: Tensor,
    positive: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    scaled_down: Tensor,
    scale: Tensor,
) -> tuple[Tensor, ...]:
    """The gradients of x, up, up_bias and down, and two sums over tokens [2, D].

    The sums are of grad · (x + change) and of grad. The change is a product with the second weight, and so is its share
    of the first sum: the change of a token is not needed again.
    """
    shares = scale_shares(len(up))
    of_x, partial = backward(grad, x, positive, up, scaled_down, scale, more_rows=shares)
    of_weights = weight_gradients(grad, x, up, up_bias, down, scaled_down, scale, partial[-shares:])
    return of_x, *of_weights, sum_programs(partial, torch.float32)
