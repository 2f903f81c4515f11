"""Cross-entropy in plain PyTorch."""

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`lightbert.ops.cross_entropy.cross_entropy`."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = F.cross_entropy(exact.flatten(0, -2), targets.flatten(), reduction="none")
    return loss.view(targets.shape), logits.argmax(-1)
