"""The KL divergence between the attention maps of a teacher and a student."""

import torch
from torch import Tensor

from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.objectives.distill.losses import attention_transfer
from lightbert.objectives.distill.pair import check_pair, shared_heads


def comparable_heads(teacher: Model, student: Model, *, mean: bool = False) -> int:
    """Check that maps can be compared, and return the number of heads that attention transfer compares.

    These are the first heads, without convolution heads; 0 = all heads, of which only the mean is comparable.
    """
    check_pair(teacher, student, None)
    if len(teacher.blocks) != len(student.blocks):
        raise InputError(
            f"teacher and student must have the same number of layers, got {len(teacher.blocks)} and "
            f"{len(student.blocks)}; give models of equal depth, or use --compare"
        )
    shared = shared_heads(teacher, student)
    if not shared and not mean:
        raise InputError(
            f"teacher and student must have the same number of heads, got {teacher.config.n_heads} and "
            f"{student.config.n_heads}; compare the mean over heads with --mean, or use --compare"
        )
    return shared


def divergences(teacher: Tensor, student: Tensor) -> list[float]:
    """KL(teacher ‖ student) of each head, averaged over tokens, from log maps [H, T, T] (MobileBERT Eq. 3)."""
    tokens = teacher.shape[-1]
    keep = torch.ones(1, tokens)
    pairs = zip(teacher.split(1), student.split(1), strict=True)
    return [attention_transfer(theirs[None], ours[None], keep).item() / tokens for theirs, ours in pairs]
