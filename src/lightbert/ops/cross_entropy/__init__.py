"""Cross-entropy over a vocabulary, with the most likely entry: both need one pass over the logits."""

from torch import Tensor

from lightbert.ops.backend import use_triton
from lightbert.ops.cross_entropy import reference


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """-log softmax(logits)[target] in fp32 at least, and the index of the largest logit.

    logits [..., V], targets [...] in [0, V) -> loss [...], most likely [...]. The gradient reaches the logits.
    """
    if use_triton(logits, fits=True):
        from lightbert.ops.cross_entropy import operator

        loss, best, _ = operator.cross_entropy(logits, targets)
        return loss, best
    return reference.cross_entropy(logits, targets)
