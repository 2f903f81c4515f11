"""The sampling kernel as an operator with torch.compile and fake tensor support; it has no gradient."""

import torch

from lightbert.ops.sampling import triton


@torch.library.custom_op(
    "lightbert::sample", mutates_args=(), schema="(Tensor logits, Tensor chances, Tensor? log_sums) -> Tensor"
)
def sample(logits, chances, log_sums):
    """See :func:`lightbert.ops.sampling.sample`."""
    return triton.sample(logits, chances, log_sums)


@sample.register_fake
def _(logits, chances, log_sums):
    return logits.new_empty(chances.shape, dtype=torch.int64)
