"""Half-precision copies of weights, cast together: under autocast each layer would cast its own in separate kernels."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lightbert.nn.projections import GroupedLinear

_CAST_BY_AUTOCAST = {nn.Linear: ("weight", "bias"), GroupedLinear: ("weight",)}
"""The parameters that autocast casts whenever a layer is called, by the exact class of the layer."""


class _Slot(NamedTuple):
    module: nn.Module
    name: str
    parameter: nn.Parameter


class HalfWeights:
    """Give the linear layers of a module bf16 copies of their weights, without changing the result.

    A layer computes what it computes under autocast; the gradients reach the fp32 parameters in fp32.
    """

    def __init__(self, module: nn.Module) -> None:
        self.slots = [
            _Slot(layer, name, parameter)
            for layer in module.modules()
            for name in _CAST_BY_AUTOCAST.get(type(layer), ())
            if (parameter := layer._parameters[name]) is not None
        ]

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the parameters by copies of their present values, for a forward and a backward pass."""
        parameters = [slot.parameter for slot in self.slots]
        copies = _Cast.apply(*parameters) if parameters else ()  # type: ignore[no-untyped-call]
        try:
            for (layer, name, _), copy in zip(self.slots, copies, strict=True):
                # Assigning the attribute is allowed for an nn.Parameter only.
                layer._parameters[name] = copy
            yield
        finally:
            for layer, name, parameter in self.slots:
                layer._parameters[name] = parameter


class _Cast(torch.autograd.Function):
    """Cast many tensors to bf16 and their gradients back, with a few kernels for all of them."""

    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        copies = _cast_all(parameters, torch.bfloat16)
        frozen = [copy for copy, trained in zip(copies, ctx.needs_input_grad, strict=True) if not trained]
        ctx.mark_non_differentiable(*frozen)
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        given = [gradient.contiguous() for gradient in gradients if gradient is not None]
        exact = iter(_cast_all(given, torch.float32))
        return tuple(None if gradient is None else next(exact) for gradient in gradients)


def _cast_all(tensors: list[Tensor] | tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
    """Return contiguous copies of contiguous tensors: equal strides are what the multi-tensor kernel requires."""
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    if copies:
        torch._foreach_copy_(copies, list(tensors))
    return copies
