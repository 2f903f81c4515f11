"""Sampling on a GPU: one program per position finds the entry whose cumulative sum reaches the random number.

The sum over the whole vocabulary is known from the cross-entropy of the same logits, or computed first. The search adds
up blocks of entries, stops at the one that contains the sample, and looks for it there.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 4096, 8


@triton.jit
def _sampling_kernel(logits, chances, log_sums, drawn, vocab: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    source = logits + row * vocab
    if log_sums is None:
        highest = float("-inf")
        total = 0.0
        for start in range(0, vocab, block):
            entry = start + tl.arange(0, block)
            scores = tl.load(source + entry, mask=entry < vocab, other=float("-inf")).to(tl.float32)
            raised = tl.maximum(highest, tl.max(scores, axis=0))
            total = total * tl.exp(highest - raised) + tl.sum(tl.exp(scores - raised), axis=0)
            highest = raised
        log_sum = highest + tl.log(total)
    else:
        log_sum = tl.load(log_sums + row)

    level = tl.load(chances + row).to(tl.float32)
    height = 0.0
    start = 0
    # The last block with entries that can be drawn, and the height at its start.
    chosen = 0
    under = 0.0
    while (start < vocab) & (height < level):
        entry = start + tl.arange(0, block)
        scores = tl.load(source + entry, mask=entry < vocab, other=float("-inf")).to(tl.float32)
        added = tl.sum(tl.exp(scores - log_sum), axis=0)
        chosen = tl.where(added > 0, start, chosen)
        under = tl.where(added > 0, height, under)
        height += added
        start += block
    entry = chosen + tl.arange(0, block)
    scores = tl.load(source + entry, mask=entry < vocab, other=float("-inf")).to(tl.float32)
    parts = tl.exp(scores - log_sum)
    below = chosen + tl.sum((under + tl.cumsum(parts, axis=0) < level).to(tl.int32), axis=0)
    # Rounding can make the last height smaller than the level; entries that are never drawn may follow.
    last = tl.max(tl.where(parts > 0, entry, 0), axis=0)
    tl.store(drawn + row, tl.minimum(below, last).to(tl.int64))


def sample(logits: Tensor, chances: Tensor, log_sums: Tensor | None = None) -> Tensor:
    """See :func:`lightbert.ops.sampling.sample`."""
    drawn = torch.empty(chances.shape, dtype=torch.int64, device=logits.device)
    if drawn.numel():
        _sampling_kernel[(drawn.numel(),)](
            logits.contiguous(),
            chances.contiguous(),
            None if log_sums is None else log_sums.contiguous(),
            drawn,
            logits.shape[-1],
            block=BLOCK,
            num_warps=WARPS,
            enable_fp_fusion=True,
        )
    return drawn
