"""Cross-entropy and argmax over a vocabulary, in one pass over the logits."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.ops import kernels
from lightbert.ops.backend import use_triton
from lightbert.ops.operators import operator


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return -log softmax(logits)[target], in fp32 at least, the index of the largest logit, and the logsumexp.

    logits [..., V], targets [...] in [0, V) -> loss [...], argmax [...], logsumexp [...]. The loss is differentiable
    in the logits. The logsumexp, for :func:`lightbert.ops.sampling.sample`, is None where computing it isn't free.
    """
    if use_triton("cross_entropy", logits, fits=True):
        return cross_entropy_operator(logits, targets)
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = F.cross_entropy(exact.flatten(0, -2), targets.flatten(), reduction="none")
    return losses.view(targets.shape), logits.argmax(-1), None


def _fake(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    loss = logits.new_empty(targets.shape, dtype=torch.float32)
    return loss, logits.new_empty(targets.shape, dtype=torch.int64), torch.empty_like(loss)


@operator("cross_entropy(Tensor logits, Tensor targets) -> (Tensor, Tensor, Tensor)", fake=_fake)
def cross_entropy_operator(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `cross_entropy`; the third result is what the gradient needs."""
    return kernels.cross_entropy.forward(logits, targets)


@operator(
    "cross_entropy_backward(Tensor grad, Tensor logits, Tensor targets, Tensor normaliser) -> Tensor",
    fake=lambda grad, logits, targets, normaliser: logits.new_empty(logits.shape),
)
def _backward(grad: Tensor, logits: Tensor, targets: Tensor, normaliser: Tensor) -> Tensor:
    return kernels.cross_entropy.backward(grad, logits, targets, normaliser)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    _, best, normaliser = output
    ctx.save_for_backward(*inputs, normaliser)
    ctx.mark_non_differentiable(best, normaliser)


def _gradients(ctx: Any, grad: Tensor, *_: Tensor) -> Any:
    return _backward(grad, *ctx.saved_tensors), None


cross_entropy_operator.register_autograd(_gradients, setup_context=_keep)
