"""The second stage of sums over all tokens: add up the results of the programs of a kernel, in a fixed order.

The gradient of a bias or of a norm's weight is a sum over all tokens. Each program of a kernel writes the sum over its
own tokens; atomic additions to one result would come in another order in every run.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 512
"""The most programs that a kernel with such sums is split into: enough for a GPU, and little to add up."""
_LANES, _BLOCK = 128, 16


@triton.jit
def _partial_sums_kernel(
    partial, total, programs, entries, lanes: tl.constexpr, block: tl.constexpr, rounds: tl.constexpr
):
    entry = tl.program_id(0) * block + tl.arange(0, block)
    exists = entry < entries
    sums = tl.zeros((lanes, block), tl.float32)
    for index in range(rounds):
        program = index * lanes + tl.arange(0, lanes)
        source = partial + program.to(tl.int64)[:, None] * entries + entry[None, :]
        sums += tl.load(source, mask=(program < programs)[:, None] & exists[None, :], other=0.0)
    tl.store(total + entry, tl.sum(sums, axis=0).to(total.dtype.element_ty), mask=exists)


def steps_per_program(blocks: int, programs: int | None = None) -> int:
    """The number of blocks of tokens that each program adds up: a power of two, so that few variants are compiled."""
    steps: int = triton.next_power_of_2(max(1, triton.cdiv(blocks, programs or PROGRAMS)))
    return steps


def sum_programs(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """Sum contiguous fp32 results [programs, ...] over the programs; no programs give zeros."""
    programs, *shape = partial.shape
    total = torch.empty(shape, dtype=dtype, device=partial.device)
    if total.numel():
        _partial_sums_kernel[(triton.cdiv(total.numel(), _BLOCK),)](
            partial,
            total,
            programs,
            total.numel(),
            lanes=_LANES,
            block=_BLOCK,
            rounds=triton.next_power_of_2(triton.cdiv(max(programs, 1), _LANES)),
            num_warps=4,
            enable_fp_fusion=True,
        )
    return total
