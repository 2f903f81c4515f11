"""The gradient of an embedding on a GPU: a program sums the gradients of all tokens of one row, in a fixed order.

A frequent word has thousands of tokens. So the tokens, sorted by row, are first summed in chunks, by a program for each
chunk that belongs to a single row. The program of the row adds up these sums, and the tokens before and after them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK, CHUNK_WARPS = 64, 4
BLOCK_TOKENS, BLOCK_WIDTH, WARPS = 8, 128, 1
"""Most rows have few tokens in a batch."""


@triton.jit
def _gradients(grad, order, place, end, channel, width):
    """The gradients of the tokens at places of the order, 0 from `end` on."""
    real = place < end
    token = tl.load(order + place, mask=real, other=0)
    source = grad + token[:, None] * width + channel[None, :]
    return tl.load(source, mask=real[:, None] & (channel < width)[None, :], other=0.0).to(tl.float32)


@triton.jit
def _embedding_chunk_kernel(grad, ordered, order, partial, width, chunk: tl.constexpr, block_width: tl.constexpr):
    index = tl.program_id(0)
    channel = tl.program_id(1) * block_width + tl.arange(0, block_width)
    start = index * chunk
    if tl.load(ordered + start) == tl.load(ordered + start + chunk - 1):
        place = start + tl.arange(0, chunk)
        sums = tl.sum(_gradients(grad, order, place, start + chunk, channel, width), axis=0)
        tl.store(partial + index.to(tl.int64) * width + channel, sums, mask=channel < width)


@triton.jit
def _embedding_backward_kernel(
    grad,
    order,
    starts,
    partial,
    out,
    width,
    chunk: tl.constexpr,
    block_tokens: tl.constexpr,
    block_width: tl.constexpr,
):
    row = tl.program_id(0)
    channel = tl.program_id(1) * block_width + tl.arange(0, block_width)
    exists = channel < width
    start, end = tl.load(starts + row), tl.load(starts + row + 1)
    # The chunks of this row alone.
    first, last = tl.cdiv(start, chunk), end // chunk
    before = tl.where(first < last, first * chunk, end)
    after = tl.where(first < last, last * chunk, end)
    sums = tl.zeros((block_tokens, block_width), tl.float32)
    for place in range(start, before, block_tokens):
        sums += _gradients(grad, order, place + tl.arange(0, block_tokens), before, channel, width)
    for index in range(first, last, block_tokens):
        one = index + tl.arange(0, block_tokens)
        source = partial + one.to(tl.int64)[:, None] * width + channel[None, :]
        sums += tl.load(source, mask=(one < last)[:, None] & exists[None, :], other=0.0)
    for place in range(after, end, block_tokens):
        sums += _gradients(grad, order, place + tl.arange(0, block_tokens), end, channel, width)
    result = tl.sum(sums, axis=0).to(out.dtype.element_ty)
    tl.store(out + row.to(tl.int64) * width + channel, result, mask=exists)


def sum_by_row(grad: Tensor, ids: Tensor, rows: int) -> Tensor:
    """Sum gradients [..., D] over equal ids [...] -> [rows, D]; without synchronising with the host."""
    width = grad.shape[-1]
    out = grad.new_empty((rows, width))
    # A stable order, so that equal ids are added in the order of their tokens.
    ordered, order = torch.sort(ids.flatten().int(), stable=True)
    starts = torch.searchsorted(ordered, torch.arange(rows + 1, dtype=torch.int32, device=ids.device))
    grad, chunks = grad.contiguous(), order.numel() // CHUNK
    partial = torch.empty((chunks, width), dtype=torch.float32, device=grad.device)
    block_width = min(BLOCK_WIDTH, triton.next_power_of_2(width))
    parts = triton.cdiv(width, block_width)
    if chunks:
        _embedding_chunk_kernel[(chunks, parts)](
            grad, ordered, order, partial, width, chunk=CHUNK, block_width=block_width, num_warps=CHUNK_WARPS
        )
    _embedding_backward_kernel[(rows, parts)](
        grad,
        order,
        starts,
        partial,
        out,
        width,
        chunk=CHUNK,
        block_tokens=BLOCK_TOKENS,
        block_width=block_width,
        num_warps=WARPS,
    )
    return out
