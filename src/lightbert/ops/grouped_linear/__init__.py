"""Grouped linear map: independent blocks of channels (ConvBERT Eq. 7)."""

from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.grouped_linear import reference


def grouped_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Map x [..., g·I] by weight [g, I, O] block by block, then add bias [g·O]."""
    groups, inputs, _ = weight.shape
    if x.shape[-1] != groups * inputs:
        raise InputError(f"x must have {groups} × {inputs} channels, as the weight, got {x.shape[-1]}")
    return reference.grouped_linear(x, weight, bias)
