"""Attention with biases for the distance between query and key (composite attention, Eq. 4 to 6)."""

from torch import Tensor

from lightbert.errors import InputError
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
    if outside not in ("clamp", "zero"):
        raise InputError(f"outside must be 'clamp' or 'zero', got {outside!r}")
    return reference.relative_attention(query, key, value, by_query, by_key, texts, outside, dropout)
