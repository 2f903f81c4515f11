"""The gradients of both weights: a program takes some inner channels through all four matmuls, over some tokens.

It computes the inner activations again and adds up in registers; a second kernel adds up the programs' sums.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.masked_tiles.triton import load_operand
from lightbert.ops.partial_sums.triton import steps_per_program
from lightbert.ops.relu_feedforward.triton import Blocks, settings

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


def gradients(
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
