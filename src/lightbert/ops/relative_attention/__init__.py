"""Attention with biases for the distance between query and key (composite attention, Eq. 4 to 6)."""

import torch
from torch import Tensor

from lightbert.errors import InputError
from lightbert.ops.backend import as_autocast, use_triton
from lightbert.ops.relative_attention import reference

relative_scores = reference.relative_scores


def relative_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    by_query: Tensor | None = None,
    by_key: Tensor | None = None,
    texts: Tensor | None = None,
    outside: str = "clamp",
    dropout: float = 0.0,
) -> Tensor:
    """Softmax(q·kᵀ/√E + distance biases)·v, all [B, H, T, E] -> [B, H, T, E].

    by_query [B or 1, H, T or 1, 2R+1] is added to score (i, j) at offset j - i, by_key [B, H, T, 2R+1] at offset i - j
    of the key. Offsets beyond ±R get the outermost weight ("clamp", as released) or zero ("zero", as in the paper).
    texts [B, T]: booleans mark the keys that every query of the row attends to, at least one in each row; with integers
    a token attends to the tokens of its own number (see :mod:`lightbert.ops.texts`).
    """
    check_outside(outside)
    if use_triton("relative_attention", as_autocast(query), fits=_supported(query, key, value, by_query, by_key)):
        return _by_kernel(query, key, value, by_query, by_key, texts, outside, dropout)
    return reference.relative_attention(query, key, value, by_query, by_key, texts, outside, dropout)


def check_outside(outside: str) -> None:
    """Check the rule for offsets beyond ±R."""
    if outside not in ("clamp", "zero"):
        raise InputError(f"outside must be 'clamp' or 'zero', got {outside!r}")


def fits(each: int, offsets: int | None) -> bool:
    """Whether the kernels support heads of this number of channels and biases for this number of offsets, if any."""
    return each <= 128 and (offsets is None or 3 <= offsets <= 129)


def _supported(query: Tensor, key: Tensor, value: Tensor, by_query: Tensor | None, by_key: Tensor | None) -> bool:
    """Whether the kernels support these shapes."""
    offsets = {bias.shape[-1] for bias in (by_query, by_key) if bias is not None}
    same = query.shape == key.shape == value.shape and len(offsets) <= 1
    return same and fits(query.shape[-1], offsets.pop() if offsets else None)


def _by_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    by_query: Tensor | None,
    by_key: Tensor | None,
    texts: Tensor | None,
    outside: str,
    dropout: float,
) -> Tensor:
    """Call the kernel's operator, which is token-major: no copies for heads that are views of [B, T, H·E]."""
    from lightbert.ops.relative_attention import operator

    batch, n_heads, tokens, _ = query.shape
    streams = [as_autocast(x).transpose(1, 2).flatten(2) for x in (query, key, value)]
    biases = [
        None if bias is None else bias.to(streams[0].dtype).expand(batch, n_heads, tokens, -1).contiguous()
        for bias in (by_query, by_key)
    ]
    seed = torch.randint(2**31, (1,), device=query.device) if dropout > 0 else None
    out, _ = operator.relative_attention(*streams, *biases, texts, seed, n_heads, outside == "clamp", dropout)
    heads: Tensor = out.unflatten(-1, (n_heads, -1)).transpose(1, 2)
    return heads
