"""Cross-entropy on a GPU: one program per position reduces the vocabulary to the largest logit and the sum."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, LANES, WARPS = 4096, 512, 8


@triton.jit
def _cross_entropy_forward_kernel(
    logits, targets, loss, best, normaliser, vocab: tl.constexpr, lanes: tl.constexpr, each: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    source = logits + row * vocab
    # Lanes are combined at the end only: a sum over all threads takes longer than the entries of a block.
    places = tl.arange(0, lanes)[:, None] * each + tl.arange(0, each)[None, :]
    highest = tl.full((lanes,), float("-inf"), tl.float32)
    total = tl.zeros((lanes,), tl.float32)
    where = tl.zeros((lanes,), tl.int32)
    for start in range(0, vocab, lanes * each):
        entry = start + places
        scores = tl.load(source + entry, mask=entry < vocab, other=float("-inf")).to(tl.float32)
        here, place = tl.max(scores, axis=1, return_indices=True)
        where = tl.where(here > highest, start + tl.arange(0, lanes) * each + place, where)
        raised = tl.maximum(highest, here)
        # A lane that has seen no finite entry stays at 0.
        base = tl.where(raised == float("-inf"), 0.0, raised)
        total = total * tl.exp(highest - base) + tl.sum(tl.exp(scores - base[:, None]), axis=1)
        highest = raised
    top = tl.max(highest, axis=0)
    sum_of_all = top + tl.log(tl.sum(total * tl.exp(highest - top), axis=0))
    first = tl.min(tl.where(highest == top, where, vocab), axis=0)
    wanted = tl.load(source + tl.load(targets + row)).to(tl.float32)
    tl.store(loss + row, sum_of_all - wanted)
    tl.store(best + row, first)
    tl.store(normaliser + row, sum_of_all)


@triton.jit
def _cross_entropy_backward_kernel(
    grad, logits, targets, normaliser, grad_logits, vocab: tl.constexpr, parts, block: tl.constexpr
):
    row = (tl.program_id(0) // parts).to(tl.int64)
    entry = (tl.program_id(0) % parts) * block + tl.arange(0, block)
    scores = tl.load(logits + row * vocab + entry, mask=entry < vocab, other=float("-inf")).to(tl.float32)
    share = tl.exp(scores - tl.load(normaliser + row))
    share = tl.where(entry == tl.load(targets + row), share - 1.0, share)
    change = share * tl.load(grad + row)
    tl.store(grad_logits + row * vocab + entry, change.to(grad_logits.dtype.element_ty), mask=entry < vocab)


def forward(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, argmax and logsumexp, each in the shape of the targets."""
    logits, targets = logits.contiguous(), targets.contiguous()
    loss, normaliser = (torch.empty(targets.shape, dtype=torch.float32, device=logits.device) for _ in range(2))
    best = torch.empty(targets.shape, dtype=torch.int64, device=logits.device)
    if targets.numel():
        _cross_entropy_forward_kernel[(targets.numel(),)](
            logits,
            targets,
            loss,
            best,
            normaliser,
            logits.shape[-1],
            lanes=LANES,
            each=BLOCK // LANES,
            num_warps=WARPS,
            enable_fp_fusion=True,
        )
    return loss, best, normaliser


def backward(grad: Tensor, logits: Tensor, targets: Tensor, normaliser: Tensor) -> Tensor:
    """The gradient of the logits."""
    grad, logits, targets = grad.contiguous(), logits.contiguous(), targets.contiguous()
    grad_logits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    if targets.numel():
        vocab = logits.shape[-1]
        parts = triton.cdiv(vocab, BLOCK)
        _cross_entropy_backward_kernel[(targets.numel() * parts,)](
            grad,
            logits,
            targets,
            normaliser,
            grad_logits,
            vocab,
            parts,
            block=BLOCK,
            num_warps=WARPS,
            enable_fp_fusion=True,
        )
    return grad_logits
