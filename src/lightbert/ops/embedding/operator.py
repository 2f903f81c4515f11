"""Embedding for autograd and torch.compile with a gradient that is summed in a fixed order, without atomics."""

import torch
import torch.nn.functional as F

from lightbert.ops.backend import HAS_TRITON

_FEW = 4
"""Tables of at most this number of rows, such as those of segments: masked sums, as sorting leaves one long sum."""


@torch.library.custom_op(
    "lightbert::embedding_backward", mutates_args=(), schema="(Tensor grad, Tensor ids, int rows) -> Tensor"
)
def _backward(grad, ids, rows):
    """The gradient of a table. As an operator, torch.compile can't replace it by atomic additions.

    PyTorch's own function, for double precision and without Triton, doesn't have the same bits in every run on a GPU.
    """
    if HAS_TRITON and grad.dtype is not torch.float64:
        from lightbert.ops.embedding.triton import sum_by_row

        return sum_by_row(grad, ids, rows)
    return torch.ops.aten.embedding_dense_backward(grad, ids, rows, -1, False)


@_backward.register_fake
def _(grad, ids, rows):
    return grad.new_empty((rows, grad.shape[-1]))


class Embedding(torch.autograd.Function):
    """The lookup itself is PyTorch's function, which torch.compile fuses with what follows."""

    @staticmethod
    def forward(ctx, ids, table):
        """See :func:`lightbert.ops.embedding.embedding`."""
        ctx.save_for_backward(ids)
        ctx.rows = table.shape[0]
        return F.embedding(ids, table)

    @staticmethod
    def backward(ctx, grad):
        """The gradient of the table."""
        (ids,) = ctx.saved_tensors
        if ctx.rows > _FEW:
            return None, _backward(grad, ids, ctx.rows)
        flat, numbers = grad.flatten(0, -2), ids.flatten()
        sums = [flat.masked_fill((numbers != row).unsqueeze(-1), 0.0).sum(0) for row in range(ctx.rows)]
        return None, torch.stack(sums)
