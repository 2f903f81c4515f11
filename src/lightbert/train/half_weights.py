"""Half-precision copies of weights, cast together: under autocast each layer would cast its own in separate kernels."""

from collections.abc import Callable, Iterator, Sequence
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
    gradient_place: returns memory for the fp32 gradient of a parameter, or None for memory of its own.
    """

    def __init__(
        self, module: nn.Module, gradient_place: Callable[[nn.Parameter], Tensor | None] = lambda parameter: None
    ) -> None:
        self.gradient_place = gradient_place
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
        copies = _Cast.apply(self._places, *parameters) if parameters else ()  # type: ignore[no-untyped-call]
        try:
            for (layer, name, _), copy in zip(self.slots, copies, strict=True):
                # Assigning the attribute is allowed for an nn.Parameter only.
                layer._parameters[name] = copy
            yield
        finally:
            for layer, name, parameter in self.slots:
                layer._parameters[name] = parameter

    def _places(self, numbers: list[int]) -> list[Tensor | None]:
        """Return memory for the gradients of some slots; a parameter of several slots gets several gradients."""
        first = {self.slots[number].parameter: number for number in reversed(numbers)}
        return [self.gradient_place(p) if first[p := self.slots[n].parameter] == n else None for n in numbers]


class _Cast(torch.autograd.Function):
    """Cast many tensors to bf16 and their gradients back, with a few kernels for all of them."""

    @staticmethod
    def forward(
        ctx: Any, places: Callable[[list[int]], list[Tensor | None]], *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.places = places
        copies = [torch.empty_like(parameter, dtype=torch.bfloat16) for parameter in parameters]
        _copy_all(copies, parameters)
        frozen = [copy for copy, trained in zip(copies, ctx.needs_input_grad[1:], strict=True) if not trained]
        ctx.mark_non_differentiable(*frozen)
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        given = {number: gradient.contiguous() for number, gradient in enumerate(gradients) if gradient is not None}
        exact = {
            number: torch.empty_like(gradient, dtype=torch.float32) if place is None else place
            for (number, gradient), place in zip(given.items(), ctx.places([*given]), strict=True)
        }
        _copy_all([*exact.values()], [*given.values()])
        return None, *(exact.get(number) for number in range(len(gradients)))


def _copy_all(targets: list[Tensor], values: Sequence[Tensor]) -> None:
    """Copy contiguous tensors: equal strides are what the multi-tensor kernel requires."""
    if targets:
        torch._foreach_copy_(targets, list(values))
