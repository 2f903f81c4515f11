"""Cross-entropy of a linear layer on a GPU, with no logits in memory in the forward pass.

There, a program goes through a part of the vocabulary for some positions and keeps one number per block of entries, the
log-sum-exp of its logits. From these numbers, a second kernel computes the loss and finds the block that contains the
sample, whose logits it computes again. Logits and sums are in units of log(2): an exponential is one instruction then,
and the factor is part of a multiply-add.

In the backward pass, a program goes through all positions for a block of entries, computes their logits again, writes
the gradients of these for the two products that follow, and has the gradients of its biases at the end.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.kernels.tiles import load_operand, store

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


class Tile(NamedTuple):
    """Positions and entries of a program's step, its warps, the tiles in memory, and the most registers per thread."""

    positions: int
    entries: int
    warps: int
    stages: int
    registers: int | None = None


FORWARD = Tile(positions=128, entries=64, warps=4, stages=2, registers=168)
SINGLE = Tile(positions=32, entries=64, warps=4, stages=2)
"""In single precision, which needs twice the shared memory."""
PROGRAMS = 792
"""About as many as the forward pass is split into: six per processor of an H200."""


@triton.jit
def _logits(x, table, bias, first, vocab, width: tl.constexpr, block: tl.constexpr, whole: tl.constexpr):
    """Logits of the entries from the first one on, minus infinity beyond the last one unless the block is whole."""
    entry, channel = tl.arange(0, block), tl.arange(0, width)
    # Distances within the block don't change from block to block, so that addresses cost one addition.
    rows = (table + first * width) + (entry[None, :] * width + channel[:, None])
    offsets = (bias + first) + entry
    if whole:
        y, offset = tl.load(rows), tl.load(offsets).to(tl.float32)
    else:
        known = entry < vocab - first
        y = tl.load(rows, mask=known[None, :], other=0.0)
        offset = tl.load(offsets, mask=known, other=float("-inf")).to(tl.float32)
    return tl.dot(x, y, input_precision="ieee") * LOG2_E + (offset * LOG2_E)[None, :]


@triton.jit
def _keep_block(logits, first, target, top, place, wanted, exists, block: tl.constexpr):
    """Write the block's log-sum-exp, and the logits of targets that it contains; return the largest logits so far."""
    best = tl.max(logits, axis=1)
    # A block of which no entry is possible has the sum 0.
    base = tl.where(best == float("-inf"), 0.0, best)
    total = tl.sum(tl.exp2(logits - base[:, None]), axis=1)
    tl.store(place, base + tl.log2(total), mask=exists)
    index = target - first
    here = (index >= 0) & (index < block)
    # Rare, since there are many blocks.
    if tl.max(here.to(tl.int32), axis=0) > 0:
        chosen = tl.arange(0, block)[None, :] == index[:, None]
        tl.store(wanted, tl.sum(tl.where(chosen, logits, 0.0), axis=1), mask=here)
    return tl.maximum(top, best)


@triton.jit
def _linear_cross_entropy_forward_kernel(
    features,
    table,
    bias,
    targets,
    sums,
    highest,
    wanted,
    positions,
    steps,
    vocab: tl.constexpr,
    width: tl.constexpr,
    rows: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    exists = row < positions
    channel = tl.arange(0, width)
    x = tl.load(features + row.to(tl.int64)[:, None] * width + channel[None, :], mask=exists[:, None], other=0.0)
    target = tl.load(targets + row, mask=exists, other=-1).to(tl.int32)
    top = tl.full((rows,), float("-inf"), tl.float32)
    begin = tl.program_id(1) * steps
    place = sums + begin.to(tl.int64) * positions + row
    whole: tl.constexpr = vocab // block
    for index in range(begin, tl.minimum(begin + steps, whole)):
        logits = _logits(x, table, bias, index * block, vocab, width, block, True)
        top = _keep_block(logits, index * block, target, top, place, wanted + row, exists, block)
        place += positions
    # The compiler knows the first condition and leaves the block out.
    if whole * block < vocab:  # noqa: SIM102
        if begin + steps > whole:
            logits = _logits(x, table, bias, whole * block, vocab, width, block, False)
            top = _keep_block(logits, whole * block, target, top, place, wanted + row, exists, block)
    tl.store(highest + tl.program_id(1).to(tl.int64) * positions + row, top, mask=exists)


@triton.jit
def _linear_cross_entropy_sampling_kernel(
    features,
    table,
    bias,
    chances,
    sums,
    highest,
    wanted,
    loss,
    correct,
    drawn,
    log_sums,
    positions,
    parts,
    vocab: tl.constexpr,
    width: tl.constexpr,
    block: tl.constexpr,
    blocks: tl.constexpr,
    most: tl.constexpr,
    most_parts: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, most)
    # Strided, but the programs of neighbouring positions read the same lines.
    each = tl.load(sums + index.to(tl.int64) * positions + row, mask=index < blocks, other=float("-inf"))
    top = tl.max(each, axis=0)
    log_sum = top + tl.log2(tl.sum(tl.exp2(each - top), axis=0))
    part = tl.arange(0, most_parts)
    logit = tl.load(wanted + row)
    largest = tl.max(tl.load(highest + part * positions + row, mask=part < parts, other=float("-inf")), axis=0)
    tl.store(loss + row, (log_sum - logit) * LN_2)
    tl.store(log_sums + row, log_sum)
    tl.store(correct + row, (logit >= largest).to(tl.int8))
    if chances is not None:
        level = tl.load(chances + row).to(tl.float32)
        shares = tl.exp2(each - log_sum)
        reached = tl.sum((tl.cumsum(shares, axis=0) < level).to(tl.int32), axis=0)
        # Rounding can make the last height smaller than the level; blocks that are never drawn may follow.
        chosen = tl.minimum(reached, tl.max(tl.where(shares > 0, index, 0), axis=0))
        under = tl.sum(tl.where(index < chosen, shares, 0.0), axis=0)
        entry = chosen * block + tl.arange(0, block)
        known = entry < vocab
        channel = tl.arange(0, width)
        x = tl.load(features + row * width + channel).to(tl.float32)
        y = tl.load(table + entry[:, None] * width + channel[None, :], mask=known[:, None], other=0.0).to(tl.float32)
        offset = tl.load(bias + entry, mask=known, other=float("-inf")).to(tl.float32)
        inside = tl.exp2((tl.sum(y * x[None, :], axis=1) + offset) * LOG2_E - log_sum)
        below = chosen * block + tl.sum((under + tl.cumsum(inside, axis=0) < level).to(tl.int32), axis=0)
        last = tl.max(tl.where(inside > 0, entry, 0), axis=0)
        tl.store(drawn + row, tl.minimum(below, last).to(tl.int64))


def forward(
    features: Tensor,
    table: Tensor,
    bias: Tensor,
    targets: Tensor,
    chances: Tensor | None,
    tile: Tile | None = None,
    programs: int = PROGRAMS,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss, whether no entry is likelier than the target, sample and log-sum-exp (log2), each as targets are shaped."""
    features, table, bias, targets = (each.contiguous() for each in (features, table, bias, targets))
    tile = tile or (FORWARD if features.itemsize == 2 else SINGLE)
    positions, (vocab, width) = targets.numel(), table.shape
    blocks, groups = triton.cdiv(vocab, tile.entries), triton.cdiv(positions, tile.positions)
    steps = triton.cdiv(blocks, max(1, programs // max(1, groups)))
    parts = triton.cdiv(blocks, steps)

    def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=features.device)

    loss, log_sums = numbers(*targets.shape), numbers(*targets.shape)
    correct = numbers(*targets.shape, dtype=torch.bool)
    drawn = numbers(*(targets.shape if chances is not None else (0,)), dtype=torch.int64)
    if positions:
        sums, highest, wanted = numbers(blocks, positions), numbers(parts, positions), numbers(positions)
        _linear_cross_entropy_forward_kernel[(groups, parts)](
            features,
            table,
            bias,
            targets,
            sums,
            highest,
            wanted,
            positions,
            steps,
            vocab,
            width,
            rows=tile.positions,
            block=tile.entries,
            num_warps=tile.warps,
            num_stages=tile.stages,
            maxnreg=tile.registers,
            enable_fp_fusion=True,
        )
        _linear_cross_entropy_sampling_kernel[(positions,)](
            features,
            table,
            bias,
            None if chances is None else chances.contiguous(),
            sums,
            highest,
            wanted,
            loss,
            correct.view(torch.int8),
            drawn,
            log_sums,
            positions,
            parts,
            vocab,
            width,
            block=tile.entries,
            blocks=blocks,
            most=triton.next_power_of_2(blocks),
            most_parts=triton.next_power_of_2(parts),
            # Most of its sums are over few numbers.
            num_warps=1,
            enable_fp_fusion=True,
        )
    return loss, correct, drawn, log_sums


BACKWARD = Tile(positions=64, entries=128, warps=4, stages=3)


@triton.jit
def _of_positions(grad, targets, log_sums, row, positions):
    """What the gradients of some positions need; beyond the last one they are 0."""
    exists = row < positions
    factor = tl.load(grad + row, mask=exists, other=0.0).to(tl.float32)
    log_sum = tl.load(log_sums + row, mask=exists, other=float("inf"))
    return factor, log_sum, tl.load(targets + row, mask=exists, other=-1).to(tl.int32)


@triton.jit
def _linear_cross_entropy_backward_kernel(
    grad,
    features,
    table,
    bias,
    targets,
    log_sums,
    grad_logits,
    whole_table,
    grad_bias,
    positions,
    vocab: tl.constexpr,
    width: tl.constexpr,
    rows: tl.constexpr,
    block: tl.constexpr,
    even: tl.constexpr,
):
    start = tl.program_id(0) * block
    entry, channel = start + tl.arange(0, block), tl.arange(0, width)
    known = entry < vocab
    place = entry[None, :] * width + channel[:, None]
    y = tl.load(table + place, mask=known[None, :], other=0.0)
    tl.store(whole_table + place, y)
    offset = tl.load(bias + entry, mask=known, other=float("-inf")).to(tl.float32) * LOG2_E
    total = tl.zeros((rows, block), tl.float32)
    row = tl.arange(0, rows)
    stride: tl.constexpr = (vocab + block - 1) // block * block
    source, place = row[:, None] * width + channel[None, :], row.to(tl.int64)[:, None] * stride + entry[None, :]
    factor, log_sum, target = _of_positions(grad, targets, log_sums, row, positions)
    for begin in range(0, positions, rows):
        exists = (row < positions - begin)[:, None]
        x = load_operand(features, source, exists, even)
        # Loaded one step ahead, because the compiler only does so for products.
        coming = _of_positions(grad, targets, log_sums, begin + rows + row, positions)
        shares = tl.exp2(tl.dot(x, y, input_precision="ieee") * LOG2_E + offset[None, :] - log_sum[:, None])
        change = tl.where(entry[None, :] == target[:, None], shares - 1.0, shares) * factor[:, None]
        total += change
        store(grad_logits, place, change, exists, even)
        features += rows * width
        grad_logits += rows * stride
        factor, log_sum, target = coming
    tl.store(grad_bias + entry, tl.sum(total, axis=0).to(grad_bias.dtype.element_ty), mask=known)


def backward(
    grad: Tensor,
    features: Tensor,
    table: Tensor,
    bias: Tensor,
    targets: Tensor,
    log_sums: Tensor,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of features, table and bias."""
    features, table, bias = (each.contiguous() for each in (features, table, bias))
    tile = tile or (BACKWARD if features.itemsize == 2 else SINGLE)
    positions, (vocab, width) = targets.numel(), table.shape
    programs = triton.cdiv(vocab, tile.entries)
    grad_logits = torch.empty(positions, programs * tile.entries, dtype=features.dtype, device=features.device)
    grad_bias = torch.empty_like(bias)
    whole_table = torch.empty(programs * tile.entries, width, dtype=table.dtype, device=table.device)
    _linear_cross_entropy_backward_kernel[(programs,)](
        grad.contiguous(),
        features,
        table,
        bias,
        targets.contiguous(),
        log_sums,
        grad_logits,
        whole_table,
        grad_bias,
        positions,
        vocab,
        width,
        rows=tile.positions,
        block=tile.entries,
        even=positions % tile.positions == 0,
        num_warps=tile.warps,
        num_stages=tile.stages,
        maxnreg=tile.registers,
        enable_fp_fusion=True,
    )
    of_table = grad_logits.t() @ features.view(positions, width)
    return (grad_logits @ whole_table).view(features.shape), of_table[:vocab], grad_bias
