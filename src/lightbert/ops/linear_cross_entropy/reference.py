"""Cross-entropy of a linear layer in three steps: a product, the cross-entropy of its logits, a sample of them."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops.backend import on_gpu
from lightbert.ops.cross_entropy import cross_entropy
from lightbert.ops.sampling import sample

_ALIGNMENT = 64


def linear_cross_entropy(
    features: Tensor, table: Tensor, bias: Tensor, targets: Tensor, chances: Tensor | None, temperature: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """See :func:`lightbert.ops.linear_cross_entropy.linear_cross_entropy`."""
    if filler := -len(bias) % (_ALIGNMENT if on_gpu(features) else 1):
        # Products with aligned rows are faster on GPUs.
        bias, table = F.pad(bias, (0, filler), value=-torch.inf), F.pad(table, (0, 0, 0, filler))
    logits = F.linear(features, table, bias)
    loss, likely, log_sums = cross_entropy(logits, targets)
    if chances is None:
        return loss, likely == targets, None
    # Detached: autograd would otherwise add zeros of the logits' size to their gradient.
    logits = logits.detach()
    drawn = sample(logits, chances, log_sums) if temperature == 1 else sample(logits / temperature, chances)
    return loss, likely == targets, drawn
