"""Drawing an entry of a vocabulary from its logits, by a given random number."""

from torch import Tensor

from lightbert.ops.backend import use_triton
from lightbert.ops.sampling import reference


def sample(logits: Tensor, chances: Tensor) -> Tensor:
    """Draw from softmax(logits) [..., V] by inverting its cumulative sum at ``chances`` [...] in [0, 1) -> [...].

    Deviation: the released ELECTRA adds Gumbel noise to every logit and takes the largest. This draws from the same
    distribution with one random number per position instead of one per vocabulary entry, which makes it affordable to
    derive the number from (seed, step, row): the sample does not depend on how the batch is shared out.
    """
    if use_triton(logits, fits=True):
        from lightbert.ops.sampling import operator

        drawn: Tensor = operator.sample(logits, chances)
        return drawn
    return reference.sample(logits, chances)
