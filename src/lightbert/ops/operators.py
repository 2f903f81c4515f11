"""Registration of functions that call kernels as operators of PyTorch, for autograd, torch.compile and fake tensors."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def operator(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Register a function as an operator of the library ``lightbert``.

    schema: name, arguments and results, as in ``bias_gelu(Tensor x, Tensor bias) -> Tensor``.
    fake: returns empty tensors like the results, without computing them; gets the same arguments.
    """
    name, _, signature = schema.partition("(")

    def register(function: Callable[..., Any]) -> Any:
        registered: Any = torch.library.custom_op(
            f"lightbert::{name}", function, mutates_args=(), schema=f"({signature}"
        )
        registered.register_fake(fake)
        return registered

    return register


def empty_like(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Contiguous empty tensors with these shapes and dtypes."""
    return tuple(x.new_empty(x.shape) for x in tensors)


def save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
    """Keep all inputs for the backward pass."""
    ctx.save_for_backward(*inputs)


def dropout_seed(dropout: float, device: torch.device) -> Tensor | None:
    """Draw the integer from which a kernel computes what dropout removes; None without dropout."""
    return torch.randint(2**31, (1,), device=device) if dropout > 0 else None
