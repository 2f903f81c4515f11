"""Embedding: rows of a table by their numbers, with a gradient that has the same bits in every run on a GPU."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops import kernels
from lightbert.ops.backend import HAS_TRITON, on_gpu
from lightbert.ops.operators import operator

_FEW = 4
"""Tables of at most this number of rows, such as those of segments: masked sums, as sorting leaves one long sum."""


def embedding(ids: Tensor, table: Tensor) -> Tensor:
    """Look up ids [...] in a table [rows, D] -> [..., D].

    The reference is PyTorch's function. Compiled for a GPU, its gradient adds the gradients of equal ids by atomic
    operations, in another order in every run.
    """
    if on_gpu(table):
        return _Embedding.apply(ids, table)  # type: ignore[no-untyped-call]
    return F.embedding(ids, table)


@operator(
    "embedding_backward(Tensor grad, Tensor ids, int rows) -> Tensor",
    fake=lambda grad, ids, rows: grad.new_empty((rows, grad.shape[-1])),
)
def embedding_backward_operator(grad: Tensor, ids: Tensor, rows: int) -> Tensor:
    """The gradient of a table. As an operator, torch.compile can't replace it by atomic additions.

    PyTorch's own function, for double precision and without Triton, doesn't have the same bits in every run on a GPU.
    """
    if HAS_TRITON and grad.dtype is not torch.float64:
        return kernels.embedding.sum_by_row(grad, ids, rows)
    return torch.ops.aten.embedding_dense_backward(grad, ids, rows, -1, False)


class _Embedding(torch.autograd.Function):
    """The lookup itself is PyTorch's function, which torch.compile fuses with what follows."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor) -> Tensor:
        """See `embedding`."""
        ctx.save_for_backward(ids)
        ctx.rows = table.shape[0]
        return F.embedding(ids, table)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """The gradient of the table."""
        (ids,) = ctx.saved_tensors
        if ctx.rows > _FEW:
            return None, embedding_backward_operator(grad, ids, ctx.rows)
        flat, numbers = grad.flatten(0, -2), ids.flatten()
        sums = [flat.masked_fill((numbers != row).unsqueeze(-1), 0.0).sum(0) for row in range(ctx.rows)]
        return None, torch.stack(sums)
