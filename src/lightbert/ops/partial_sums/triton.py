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
_LANES, _BLOCK, _WARPS = 128, 16, 8
_REGISTERS = 96
"""An explicit limit, with which the compiler starts all loads of a thread first."""


@triton.jit
def _partial_sums_kernel(
    partial, total, last, programs, entries, split, lanes: tl.constexpr, block: tl.constexpr, rounds: tl.constexpr
):
    """Write the sums of the first ``split`` entries to ``total``, and those of the others to ``last``."""
    entry = tl.program_id(0) * block + tl.arange(0, block)
    exists = entry < entries
    sums = tl.zeros((lanes, block), tl.float32)
    # Unrolled, so that all loads can start at once.
    for index in tl.static_range(rounds):
        program = index * lanes + tl.arange(0, lanes)
        source = partial + program.to(tl.int64)[:, None] * entries + entry[None, :]
        sums += tl.load(source, mask=(program < programs)[:, None] & exists[None, :], other=0.0)
    result = tl.sum(sums, axis=0)
    tl.store(total + entry, result.to(total.dtype.element_ty), mask=entry < split)
    if last is not None:
        tl.store(last + (entry - split), result.to(last.dtype.element_ty), mask=(entry >= split) & exists)


def steps_per_program(blocks: int, programs: int | None = None) -> int:
    """The number of blocks of tokens that each program adds up: a power of two, so that few variants are compiled."""
    steps: int = triton.next_power_of_2(max(1, triton.cdiv(blocks, programs or PROGRAMS)))
    return steps


def sum_programs(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """Sum contiguous fp32 results [programs, ...] over the programs; no programs give zeros."""
    total = torch.empty(partial.shape[1:], dtype=dtype, device=partial.device)
    _add_up(partial, total, None)
    return total


def sum_programs_apart(
    partial: Tensor, first: torch.Size, dtype: torch.dtype, last_dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Sum in the same way; the first entries, of this shape, and the other ones are results with their own dtypes."""
    total = torch.empty(first, dtype=dtype, device=partial.device)
    last = torch.empty(partial.shape[1:].numel() - total.numel(), dtype=last_dtype, device=partial.device)
    _add_up(partial, total, last)
    return total, last


def _add_up(partial: Tensor, total: Tensor, last: Tensor | None) -> None:
    programs, entries = len(partial), total.numel() + (0 if last is None else last.numel())
    if entries:
        _partial_sums_kernel[(triton.cdiv(entries, _BLOCK),)](
            partial,
            total,
            last,
            programs,
            entries,
            total.numel(),
            lanes=_LANES,
            block=_BLOCK,
            rounds=triton.next_power_of_2(triton.cdiv(max(programs, 1), _LANES)),
            num_warps=_WARPS,
            maxnreg=_REGISTERS,
            enable_fp_fusion=True,
        )
