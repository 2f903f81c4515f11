"""Compare an op with a slow, simple computation in fp64: the result, and the gradient of every input."""

from collections.abc import Callable

import torch
from torch import Tensor

SHAPES = {
    "one token": (2, 1),
    "shorter than the kernel": (2, 3),
    "primes": (3, 11),
    "empty batch": (0, 5),
}
"""Batch sizes and numbers of tokens for every op."""


TEXTS = ("one text per row", "padded", "packed")
"""The kinds of ``texts`` for every op that takes them."""


def draw_texts(kind: str, batch: int, tokens: int) -> Tensor | None:
    """Text numbers [B, T] of one kind; with padding, the last row is all padding."""
    if kind == "one text per row":
        return None
    if kind == "padded":
        texts = torch.rand(batch, tokens) < 0.7
    else:
        borders = (torch.rand(batch, tokens) < 0.3).cumsum(1)
        texts = torch.where(torch.rand(batch, tokens) < 0.8, borders + 1, 0)
    texts[-1:] = 0
    return texts


def reads(texts: Tensor | None, row: int, token: int, source: int, tokens: int) -> bool:
    """Whether a convolution at ``token`` reads ``source``, as ``lightbert.ops.documents`` defines it."""
    if not 0 <= source < tokens:
        return False
    if texts is None:
        return True
    here, there = texts[row, token].item(), texts[row, source].item()
    return bool(there) and (texts.dtype is torch.bool or here == there)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def scattered(x: Tensor) -> Tensor:
    """The same numbers as a non-contiguous tensor: axes in reverse order, NaN at every second element in memory."""
    backwards = tuple(reversed(range(x.dim())))
    turned = x.permute(backwards)
    return torch.stack([turned, torch.full_like(turned, torch.nan)], dim=-1)[..., 0].permute(backwards)


def assert_same_with_gradients(
    op: Callable[..., Tensor], naive: Callable[..., Tensor], inputs: dict[str, Tensor], **fixed: object
) -> None:
    """Both get the inputs by name; the output's gradient is random, so that no two errors cancel in a sum."""
    results = []
    for function in (op, naive):
        leaves = {name: value.detach().clone().requires_grad_() for name, value in inputs.items()}
        out = function(**{name: scattered(leaf) for name, leaf in leaves.items()}, **fixed)
        torch.manual_seed(1)
        out.backward(torch.randn(out.shape, dtype=out.dtype))
        # Attention over an empty batch gives its mask no gradient, which is equivalent to an empty one.
        gradients = {name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for name, leaf in leaves.items()}
        results.append((out, gradients))
    (out, gradients), (expected, expected_gradients) = results
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-12, atol=1e-12, msg=f"gradient of {name}")
