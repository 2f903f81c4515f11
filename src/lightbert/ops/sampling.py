"""Sample from a vocabulary by its logits, with given random numbers."""

import torch
from torch import Tensor

from lightbert.ops import kernels
from lightbert.ops.backend import use_triton
from lightbert.ops.operators import operator


def sample(logits: Tensor, chances: Tensor, log_sums: Tensor | None = None) -> Tensor:
    """Draw from softmax(logits) [..., V] by inverting its cumulative sum at ``chances`` [...] in [0, 1) -> [...].

    log_sums [...]: the logsumexp of the logits, if it is known: it saves the kernel most of the reading.

    Deviation: the released ELECTRA adds Gumbel noise to every logit and takes the argmax. This op samples from the same
    distribution with one random number per position instead of one per vocabulary entry. The number is derived from
    (seed, step, row), so the sample doesn't depend on how the batch is distributed.
    """
    if use_triton("sampling", logits, fits=True):
        return sample_operator(logits, chances, log_sums)
    heights = torch.softmax(logits.float(), dim=-1).cumsum(dim=-1)  # [..., V]
    # Rounding can make the last sum less than 1; without the clamp a larger chance would give index V.
    levels = (chances * heights[..., -1]).unsqueeze(-1)
    return torch.searchsorted(heights, levels).squeeze(-1).clamp(max=logits.shape[-1] - 1)


@operator(
    "sample(Tensor logits, Tensor chances, Tensor? log_sums) -> Tensor",
    fake=lambda logits, chances, log_sums: logits.new_empty(chances.shape, dtype=torch.int64),
)
def sample_operator(logits: Tensor, chances: Tensor, log_sums: Tensor | None) -> Tensor:
    """See `sample`; without a gradient."""
    return kernels.sampling.sample(logits, chances, log_sums)
