"""Which layers may be computed by a function of their parameters, instead of being called."""

from typing import TypeGuard, TypeVar

from torch import Tensor, nn

_Layer = TypeVar("_Layer", bound=nn.Module)


def is_plain(layer: nn.Module, kind: type[_Layer]) -> TypeGuard[_Layer]:
    """Whether a layer computes exactly what its class does, with all of its parameters.

    False if it is of another class, even a subclass (an adapter, a quantized or parametrized layer), has hooks or a
    replaced ``forward``, lacks a parameter, or its parameters aren't plain floating-point tensors.
    """
    if type(layer) is not kind or "forward" in vars(layer):
        return False
    return not has_hooks(layer) and all(_is_plain_tensor(parameter) for parameter in layer._parameters.values())


def has_hooks(layer: nn.Module) -> bool:
    """Whether a call of a layer also calls hooks that are registered on it."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks)


def _is_plain_tensor(parameter: Tensor | None) -> bool:
    return parameter is not None and type(parameter) in (nn.Parameter, Tensor) and parameter.is_floating_point()
