"""One vector per text from the states of its tokens."""

from typing import Literal

import torch
from torch import Tensor

from lightbert.nn.packed import PackedTexts

TextPool = Literal["cls", "mean", "max", "mean-max"]

_PARTS: dict[TextPool, tuple[Literal["mean", "max"], ...]] = {
    "cls": (),
    "mean": ("mean",),
    "max": ("max",),
    "mean-max": ("mean", "max"),
}
TEXT_POOLS: tuple[TextPool, ...] = tuple(_PARTS)


def pool_texts(states: Tensor, pool: TextPool, mask: Tensor | None = None, places: PackedTexts | None = None) -> Tensor:
    """Pool the states of each text: [..., T, D] -> [..., D], or [..., 2·D] for "mean-max", the mean first.

    "cls" is the state of the first token. The others are taken over the real tokens, [CLS] and [SEP] included, in
    float32 at least; the result has the dtype of the states.
    mask: 0 in the padding; None = nothing is padded.
    places: where the texts of packed rows are: [B, T, D] -> [N, D]; the mask then has their numbers.
    """
    if pool == "cls":
        return states[..., 0, :] if places is None else places.first(states)
    wide = states.to(torch.promote_types(states.dtype, torch.float32))
    if places is None:
        pooled = [_pool_rows(wide, part, mask) for part in _PARTS[pool]]
    else:
        assert mask is not None
        pooled = [places.pool(wide, part, mask) for part in _PARTS[pool]]
    return torch.cat(pooled, dim=-1).to(states.dtype)


def pooled_width(width: int, pool: TextPool) -> int:
    """The number of values that `pool_texts` returns for states of this width."""
    return width * max(1, len(_PARTS[pool]))


def _pool_rows(states: Tensor, pool: Literal["mean", "max"], mask: Tensor | None) -> Tensor:
    if mask is None:
        return states.mean(-2) if pool == "mean" else states.amax(-2)
    # A row that is all padding is pooled as if nothing were padded, which keeps its (unused) vector finite.
    padding = ((mask == 0) & (mask != 0).any(-1, keepdim=True)).unsqueeze(-1)  # [..., T, 1]
    if pool == "max":
        return states.masked_fill(padding, float("-inf")).amax(-2)
    return states.masked_fill(padding, 0.0).sum(-2) / (~padding).sum(-2)
