"""Walks: ``walk`` consecutive tokens of a row, which one thread of a convolution's kernel computes one after the other.

Neighbouring tokens share almost all that their taps read, so that a thread loads and converts each number about once
and keeps it in registers. A walk never leaves its row; the last one of a row may be incomplete.
"""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def first_tokens(index, rows, row_tokens, walk: tl.constexpr):
    """The first token of each walk in the batch and in its row; a walk beyond the batch starts beyond its row."""
    per_row = tl.cdiv(row_tokens, walk)
    place = (index % per_row) * walk
    token = (index // per_row).to(tl.int64) * row_tokens + place
    return token, tl.where(index < rows * per_row, place, row_tokens + walk)


@triton.jit
def in_row(place, shift: tl.constexpr, row_tokens, walk: tl.constexpr, whole: tl.constexpr):
    """Whether the tokens at ``shift`` from the start of the walks are in their rows.

    If rows are divided into whole walks, all tokens before a walk have one answer, its own and those after it too.
    """
    if whole and shift < 0:
        here = (place < row_tokens) & (place > 0)
    elif whole and shift < walk:
        here = place < row_tokens
    elif whole:
        here = place + walk < row_tokens
    else:
        here = (place + shift < row_tokens) & (place + shift >= 0)
    return here


@triton.jit
def same_text(one, other):
    """Whether tokens with these text numbers read each other."""
    return (one == other) & (one != 0)


def has_whole_walks(tokens: int, walk: int, taps: int) -> bool:
    """Whether rows are divided into whole walks, and no tap reaches further than into the next one."""
    return tokens % walk == 0 and taps // 2 <= walk


def count_programs(x: Tensor, walk: int, walks: int) -> int:
    """The number of programs that each compute ``walks`` walks of x [B, T, D]."""
    batch, tokens, _ = x.shape
    programs: int = triton.cdiv(batch * triton.cdiv(tokens, walk), walks)
    return programs
