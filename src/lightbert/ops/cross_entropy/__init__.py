"""Cross-entropy and argmax over a vocabulary, in one pass over the logits."""

from torch import Tensor

from lightbert.ops.backend import use_triton
from lightbert.ops.cross_entropy import reference


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return -log softmax(logits)[target], in fp32 at least, and the index of the largest logit.

    logits [..., V], targets [...] in [0, V) -> loss [...], argmax [...]. The loss is differentiable in the logits.
    """
    if use_triton(logits, fits=True):
        from lightbert.ops.cross_entropy import operator

        loss, best, _ = operator.cross_entropy(logits, targets)
        return loss, best
    return reference.cross_entropy(logits, targets)
