"""Grouped linear map: independent blocks of channels (ConvBERT Eq. 7)."""

from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.backend import as_autocast, on_gpu
from lightbert.ops.grouped_linear import reference


def grouped_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Map x [..., g·I] by weight [g, I, O] block by block, then add bias [g·O]."""
    # Under autocast a float32 bias would make the result float32; a linear layer rounds its bias as well.
    return grouped_product(x, weight) + as_autocast(bias)


def grouped_product(x: Tensor, weight: Tensor) -> Tensor:
    """Map x [..., g·I] by weight [g, I, O] block by block: [..., g·O]."""
    groups, inputs, _ = weight.shape
    if x.shape[-1] != groups * inputs:
        raise InputError(f"x must have {groups} × {inputs} channels, as the weight, got {x.shape[-1]}")
    if not on_gpu(x):
        return reference.grouped_product(x, weight)
    from lightbert.ops.grouped_linear import operator

    out: Tensor = operator.grouped_product(as_autocast(x), as_autocast(weight))
    return out
