"""The cross-entropy of a linear layer over a vocabulary, and samples from it."""

from torch import Tensor

from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.linear_cross_entropy import reference

_WIDTHS = (16, 32, 64, 128)
"""Channels of the kernels' tiles."""


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
        from lightbert.ops.linear_cross_entropy import operator

        weights = (as_autocast(each) for each in (table, bias))
        loss, correct, drawn, _ = operator.linear_cross_entropy(rounded, *weights, targets, chances)
        return loss, correct, None if chances is None else drawn
    return reference.linear_cross_entropy(features, table, bias, targets, chances, temperature)
