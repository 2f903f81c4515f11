"""Half-precision copies of weights, cast together: under autocast each layer would cast its own in separate kernels."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lightbert.nn.feedforward import GroupedLinear
from lightbert.nn.fused import Padding, kernel_paddings

_CAST_BY_AUTOCAST = {nn.Linear: ("weight", "bias"), GroupedLinear: ("weight", "bias")}
"""The parameters that autocast casts whenever a layer is called, by the exact class of the layer."""


class _Slot(NamedTuple):
    module: nn.Module
    name: str
    parameter: nn.Parameter
    padding: Padding
    """Rows of zeros in the copy."""


class HalfWeights:
    """Give the linear layers of a module bf16 copies of their weights, without changing the result.

    A layer computes what it computes under autocast; the gradients reach the fp32 parameters in fp32. On a GPU, the
    kernel layers of dynamic convolutions get padded copies, which they would make by kernels of their own.
    gradient_place: returns memory for the fp32 gradient of a parameter, or None for memory of its own.
    """

    def __init__(
        self, module: nn.Module, gradient_place: Callable[[nn.Parameter], Tensor | None] = lambda parameter: None
    ) -> None:
        self.gradient_place = gradient_place
        paddings = kernel_paddings(module)
        self.slots = [
            _Slot(layer, name, parameter, paddings.get(layer, Padding()))
            for layer in module.modules()
            for name in _CAST_BY_AUTOCAST.get(type(layer), ())
            if (parameter := layer._parameters[name]) is not None
        ]
        self._padded: dict[int, Tensor] = {}
        """Copies with rows of zeros, which are written once."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the parameters by copies of their present values, for a forward and a backward pass."""
        parameters = [slot.parameter for slot in self.slots]
        copies = _Cast.apply(self, *parameters) if parameters else ()  # type: ignore[no-untyped-call]
        try:
            for slot, copy in zip(self.slots, copies, strict=True):
                # Assigning the attribute is allowed for an nn.Parameter only.
                slot.module._parameters[slot.name] = copy
            yield
        finally:
            for slot in self.slots:
                slot.module._parameters[slot.name] = slot.parameter

    def memory(self, number: int) -> Tensor:
        """Return memory for the copy of a slot; that of padded copies is used again, because its zeros stay."""
        _, _, parameter, padding = self.slots[number]
        if not padding.filler:
            return torch.empty_like(parameter, dtype=torch.bfloat16)
        if number not in self._padded:
            rows = parameter.shape[0] + padding.blocks * padding.filler
            self._padded[number] = parameter.new_zeros(rows, *parameter.shape[1:], dtype=torch.bfloat16)
        return self._padded[number].detach()

    def places(self, numbers: list[int]) -> list[Tensor]:
        """Return memory for the gradients of some slots; a parameter of several slots gets several gradients."""
        parameters = [self.slots[number].parameter for number in numbers]
        first = {parameter: number for number, parameter in reversed([*zip(numbers, parameters, strict=True)])}
        known = [
            self.gradient_place(parameter) if first[parameter] == number else None
            for number, parameter in zip(numbers, parameters, strict=True)
        ]
        return [
            torch.empty_like(parameter, dtype=torch.float32) if place is None else place
            for parameter, place in zip(parameters, known, strict=True)
        ]


class _Cast(torch.autograd.Function):
    """Cast many tensors to bf16 and their gradients back, with a few kernels for all of them."""

    @staticmethod
    def forward(ctx: Any, weights: HalfWeights, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.weights = weights
        copies = [weights.memory(number) for number in range(len(parameters))]
        paddings = [slot.padding for slot in weights.slots]
        _copy_all(
            [block for padding, copy in zip(paddings, copies, strict=True) for block in padding.filled(copy)],
            [block for padding, given in zip(paddings, parameters, strict=True) for block in padding.split(given)],
        )
        frozen = [copy for copy, trained in zip(copies, ctx.needs_input_grad[1:], strict=True) if not trained]
        ctx.mark_non_differentiable(*frozen)
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        given = {number: gradient.contiguous() for number, gradient in enumerate(gradients) if gradient is not None}
        exact = dict(zip(given, ctx.weights.places([*given]), strict=True))
        paddings = {number: ctx.weights.slots[number].padding for number in given}
        _copy_all(
            [block for number, place in exact.items() for block in paddings[number].split(place)],
            [block for number, gradient in given.items() for block in paddings[number].filled(gradient)],
        )
        return None, *(exact.get(number) for number in range(len(gradients)))


def _copy_all(targets: list[Tensor], values: list[Tensor]) -> None:
    """Copy contiguous tensors: equal strides are what the multi-tensor kernel requires."""
    if targets:
        torch._foreach_copy_(targets, values)
