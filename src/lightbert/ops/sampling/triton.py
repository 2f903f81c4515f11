"""Sampling on a GPU: one program per position finds the entry whose cumulative sum reaches the random number.

The sum over the whole vocabulary is known from the cross-entropy of the same logits, or computed first. The search
stops at the block of entries that contains the sample.
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
    below = 0
    last = 0
    height = 0.0
    start = 0
    while (start < vocab) & (height < level):
        entry = start + tl.arange(0, block)
        scores = tl.load(source + entry, mask=entry < vocab, other=float("-inf")).to(tl.float32)
        parts = tl.exp(scores - log_sum)
        heights = height + tl.cumsum(parts, axis=0)
        below += tl.sum(((heights < level) & (entry < vocab)).to(tl.int32), axis=0)
        height += tl.sum(parts, axis=0)
        last = tl.maximum(last, tl.max(tl.where(parts > 0, entry, 0), axis=0))
        start += block
    # Rounding can make the last height smaller than the level; entries that are never drawn may follow.
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
