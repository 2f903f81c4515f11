"""The gradient of an embedding on a GPU: a program sums the gradients of all tokens of one row, in a fixed order."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_TOKENS, BLOCK_WIDTH, WARPS = 32, 128, 4
"""Most rows have few tokens in a batch, and the most frequent word a few per cent of them."""


@triton.jit
def _embedding_backward_kernel(grad, order, starts, out, width, block_tokens: tl.constexpr, block_width: tl.constexpr):
    row = tl.program_id(0)
    channel = tl.program_id(1) * block_width + tl.arange(0, block_width)
    exists = channel < width
    start, end = tl.load(starts + row), tl.load(starts + row + 1)
    sums = tl.zeros((block_tokens, block_width), tl.float32)
    for first in range(start, end, block_tokens):
        place = first + tl.arange(0, block_tokens)
        real = place < end
        token = tl.load(order + place, mask=real, other=0)
        source = grad + token[:, None] * width + channel[None, :]
        sums += tl.load(source, mask=real[:, None] & exists[None, :], other=0.0).to(tl.float32)
    result = tl.sum(sums, axis=0).to(out.dtype.element_ty)
    tl.store(out + row.to(tl.int64) * width + channel, result, mask=exists)


def sum_by_row(grad: Tensor, ids: Tensor, rows: int) -> Tensor:
    """Sum gradients [..., D] over equal ids [...] -> [rows, D]; without synchronising with the host."""
    width = grad.shape[-1]
    out = grad.new_empty((rows, width))
    # A stable order, so that equal ids are added in the order of their tokens.
    ordered, order = torch.sort(ids.flatten().int(), stable=True)
    starts = torch.searchsorted(ordered, torch.arange(rows + 1, dtype=torch.int32, device=ids.device))
    block_width = min(BLOCK_WIDTH, triton.next_power_of_2(width))
    _embedding_backward_kernel[(rows, triton.cdiv(width, block_width))](
        grad.contiguous(),
        order,
        starts,
        out,
        width,
        block_tokens=BLOCK_TOKENS,
        block_width=block_width,
        num_warps=WARPS,
    )
    return out
