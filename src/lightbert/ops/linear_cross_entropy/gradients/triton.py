"""Cross-entropy of a linear layer on a GPU: the gradients.

A program goes through all positions for a block of entries, computes their logits again, writes the gradients of these
for the two products that follow, and has the gradients of its biases at the end.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightbert.ops.linear_cross_entropy.triton import LOG2_E, SINGLE, Tile
from lightbert.ops.masked_tiles.triton import load_operand, store

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
