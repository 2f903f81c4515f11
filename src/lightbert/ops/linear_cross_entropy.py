"""The cross-entropy of a linear layer over a vocabulary, and samples from it."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops import kernels
from lightbert.ops.backend import as_autocast, on_gpu, use_triton
from lightbert.ops.cross_entropy import cross_entropy
from lightbert.ops.operators import empty_like, operator
from lightbert.ops.sampling import sample

_WIDTHS = (16, 32, 64, 128)
"""Channels of the kernels' tiles."""
_ALIGNMENT = 64


def linear_cross_entropy(
    features: Tensor,
    table: Tensor,
    bias: Tensor,
    targets: Tensor,
    chances: Tensor | None = None,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return -log softmax(features · tableᵀ + bias)[target], whether the target is the likeliest entry, and samples.

    features [..., D], table [V, D], bias [V], targets [...] in [0, V), chances [...] in [0, 1) -> loss [...], in fp32
    at least and differentiable in the first three, a mask [...], samples [...] or None without chances. Samples are
    drawn from the logits divided by the temperature, as :func:`lightbert.ops.sampling.sample` draws them.
    """
    rounded = as_autocast(features)
    if use_triton("linear_cross_entropy", rounded, fits=table.shape[1] in _WIDTHS and temperature == 1):
        inputs = (rounded, as_autocast(table), as_autocast(bias))
        loss, correct, drawn, _ = linear_cross_entropy_operator(*inputs, targets, chances)
        return loss, correct, None if chances is None else drawn
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


def _fake(features: Tensor, table: Tensor, bias: Tensor, targets: Tensor, chances: Tensor | None) -> Any:
    loss = features.new_empty(targets.shape, dtype=torch.float32)
    drawn = targets.new_empty(targets.shape if chances is not None else (0,), dtype=torch.int64)
    return loss, targets.new_empty(targets.shape, dtype=torch.bool), drawn, torch.empty_like(loss)


@operator(
    "linear_cross_entropy(Tensor features, Tensor table, Tensor bias, Tensor targets, Tensor? chances)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    fake=_fake,
)
def linear_cross_entropy_operator(
    features: Tensor, table: Tensor, bias: Tensor, targets: Tensor, chances: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `linear_cross_entropy`; the fourth result is what gradients need."""
    return kernels.linear_cross_entropy.forward(features, table, bias, targets, chances)


@operator(
    "linear_cross_entropy_backward(Tensor grad, Tensor features, Tensor table, Tensor bias, Tensor targets,"
    " Tensor log_sums) -> (Tensor, Tensor, Tensor)",
    fake=lambda grad, features, table, bias, targets, log_sums: empty_like(features, table, bias),
)
def _backward(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return kernels.linear_cross_entropy.backward(*inputs)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    features, table, bias, targets, _ = inputs
    _, *others = output
    ctx.save_for_backward(features, table, bias, targets, others[-1])
    ctx.mark_non_differentiable(*others)


def _gradients(ctx: Any, grad: Tensor, *_: Tensor) -> Any:
    return *_backward(grad, *ctx.saved_tensors), None, None


linear_cross_entropy_operator.register_autograd(_gradients, setup_context=_keep)
