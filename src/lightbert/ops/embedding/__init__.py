"""Embedding: rows of a table by their numbers, with a gradient that has the same bits in every run on a GPU."""

import torch.nn.functional as F
from torch import Tensor

from lightbert.ops.backend import on_gpu


def embedding(ids: Tensor, table: Tensor) -> Tensor:
    """Look up ids [...] in a table [rows, D] -> [..., D].

    The reference is PyTorch's function. Compiled for a GPU, its gradient adds the gradients of equal ids by atomic
    operations, in another order in every run.
    """
    if on_gpu(table):
        from lightbert.ops.embedding.operator import Embedding

        looked_up: Tensor = Embedding.apply(ids, table)  # type: ignore[no-untyped-call]
        return looked_up
    return F.embedding(ids, table)
