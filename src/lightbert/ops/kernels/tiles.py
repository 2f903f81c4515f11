"""What the kernels share: loads and stores, dropout, runs of tokens, sums over programs, and the layout of inputs.

Loads and stores: a kernel that is compiled for ``even`` shapes, multiples of its tiles, has no masks.

Dropout: random bits are a function of a seed and a position, so that the backward pass computes them again. A kernel
mixes its rows and its columns once each; every combination of both then costs five integer instructions.

Runs: ``run`` consecutive tokens of a row, which one thread of a convolution's kernel computes one after the other.
Neighbouring tokens share almost all that their taps read, so that a thread loads and converts each number about once
and keeps it in registers. A run never leaves its row; the last one of a row may be incomplete.

Sums over all tokens, such as the gradient of a bias: each program of a kernel writes the sum over its own tokens, and a
second kernel adds these up in a fixed order. Atomic additions would come in another order in every run.

Layout: the rows of a batch are one sequence of B·T tokens.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def load(source, place, within, even: tl.constexpr):
    """Numbers in fp32, zeros outside of the tensor; there is no outside if ``even``."""
    values = tl.load(source + place) if even else tl.load(source + place, mask=within, other=0.0)
    return values.to(tl.float32)


@triton.jit
def store(target, place, values, within, even: tl.constexpr):
    """Write numbers in the dtype of the target."""
    if even:
        tl.store(target + place, values.to(target.dtype.element_ty))
    else:
        tl.store(target + place, values.to(target.dtype.element_ty), mask=within)


@triton.jit
def load_operand(source, place, within, even: tl.constexpr):
    """As `load`, in the dtype of the source: for matmuls."""
    return tl.load(source + place) if even else tl.load(source + place, mask=within, other=0)


@triton.jit
def mix(word):
    """``randomness.mix`` of 32-bit words."""
    word = word ^ (word >> 16)
    word = word * 0x7FEB352D
    word = word ^ (word >> 15)
    word = word * 0x846CA68B
    return word ^ (word >> 16)


@triton.jit
def mix_columns(column):
    """The words of columns, for ``combine``."""
    return mix(column.to(tl.uint32) ^ 0x243F6A88)


@triton.jit
def combine(of_row, of_column):
    """32 random bits for each combination of a mixed row and a mixed column."""
    word = (of_row ^ of_column) * 0x7FEB352D
    return (word ^ (word >> 15)) * 0x2C1B3C6D


@triton.jit
def first_tokens(index, rows, row_tokens, run: tl.constexpr):
    """The first token of each run in the batch and in its row; a run beyond the batch starts beyond its row."""
    per_row = tl.cdiv(row_tokens, run)
    place = (index % per_row) * run
    token = (index // per_row).to(tl.int64) * row_tokens + place
    return token, tl.where(index < rows * per_row, place, row_tokens + run)


@triton.jit
def in_row(place, shift: tl.constexpr, row_tokens, run: tl.constexpr, whole: tl.constexpr):
    """Whether the tokens at ``shift`` from the start of the runs are in their rows.

    If rows are divided into whole runs, all tokens before a run have one answer, its own and those after it too.
    """
    if whole and shift < 0:
        here = (place < row_tokens) & (place > 0)
    elif whole and shift < run:
        here = place < row_tokens
    elif whole:
        here = place + run < row_tokens
    else:
        here = (place + shift < row_tokens) & (place + shift >= 0)
    return here


@triton.jit
def same_text(one, other):
    """Whether tokens with these document ids read each other."""
    return (one == other) & (one != 0)


def has_whole_runs(tokens: int, run: int, taps: int) -> bool:
    """Whether rows are divided into whole runs, and no tap reaches further than into the next one."""
    return tokens % run == 0 and taps // 2 <= run


def count_programs(x: Tensor, run: int, runs: int) -> int:
    """The number of programs that each compute ``runs`` runs of x [B, T, D]."""
    batch, tokens, _ = x.shape
    programs: int = triton.cdiv(batch * triton.cdiv(tokens, run), runs)
    return programs


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


def is_flat(x: Tensor) -> bool:
    """Whether x [B, T, D] has contiguous channels and a constant stride between tokens, as a slice of channels has."""
    return x.stride(2) == 1 and x.stride(0) == x.shape[1] * x.stride(1)


def flat(x: Tensor) -> Tensor:
    """Return x [B, T, D] with contiguous channels and a constant stride between tokens, copied if necessary."""
    return x if is_flat(x) else x.contiguous()


def text_rule(texts: Tensor | None) -> tuple[Tensor | None, int]:
    """The document ids and the rule for them: 0 no texts, 1 zeros are padding, 2 also compare the numbers."""
    if texts is None:
        return None, 0
    if texts.dtype is torch.bool:
        return texts.contiguous().view(torch.uint8), 1
    return texts.contiguous(), 2
