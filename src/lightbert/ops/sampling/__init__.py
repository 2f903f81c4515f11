"""Sample from a vocabulary by its logits, with given random numbers."""

from torch import Tensor

from lightbert.ops.backend import use_triton
from lightbert.ops.sampling import reference


def sample(logits: Tensor, chances: Tensor, log_sums: Tensor | None = None) -> Tensor:
    """Draw from softmax(logits) [..., V] by inverting its cumulative sum at ``chances`` [...] in [0, 1) -> [...].

    log_sums [...]: the log-sum-exp of the logits, if it is known: it saves the kernel most of the reading.

    Deviation: the released ELECTRA adds Gumbel noise to every logit and takes the argmax. This op samples from the same
    distribution with one random number per position instead of one per vocabulary entry. The number is derived from
    (seed, step, row), so the sample doesn't depend on how the batch is distributed.
    """
    if use_triton("sampling", logits, fits=True):
        from lightbert.ops.sampling import operator

        drawn: Tensor = operator.sample(logits, chances, log_sums)
        return drawn
    return reference.sample(logits, chances)
