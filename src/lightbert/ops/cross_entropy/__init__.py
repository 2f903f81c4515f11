"""Cross-entropy and argmax over a vocabulary, in one pass over the logits."""

from torch import Tensor

from lightbert.ops.backend import use_triton
from lightbert.ops.cross_entropy import reference


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return -log softmax(logits)[target], in fp32 at least, the index of the largest logit, and the log-sum-exp.

    logits [..., V], targets [...] in [0, V) -> loss [...], argmax [...], log-sum-exp [...]. The loss is differentiable
    in the logits. The log-sum-exp, for :func:`lightbert.ops.sampling.sample`, is None where computing it isn't free.
    """
    if use_triton("cross_entropy", logits, fits=True):
        from lightbert.ops.cross_entropy import operator

        loss, best, log_sums = operator.cross_entropy(logits, targets)
        return loss, best, log_sums
    return *reference.cross_entropy(logits, targets), None
