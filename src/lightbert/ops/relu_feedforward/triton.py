"""The narrow feed-forward on a GPU: a program takes some tokens through both matmuls, in parts of the inner width.

The inner activations never leave the chip: the forward pass keeps one bit of each, whether it is positive. The backward
pass has one kernel for the gradient of the input, which needs no more than that, and others for the gradients of the
weights (`weights/`), which compute the activations again.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.masked_tiles.triton import load, load_operand, store


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
