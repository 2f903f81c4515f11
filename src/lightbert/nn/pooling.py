"""One vector per text from the states of its tokens, in padded and in packed rows.

All shapes of packed rows are static, so that one recorded or compiled forward pass serves every batch: the number of
texts is fixed, and texts that a batch doesn't have are empty.
"""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class PackedTexts(NamedTuple):
    """Where the texts of packed rows are."""

    starts: Tensor
    """[N] int64: the place of the first token in the flattened rows; B·T if the batch has fewer texts."""
    lengths: Tensor
    """[N] int64: the number of tokens; 0 if the batch has fewer texts. The outputs of such a text mean nothing."""

    def first(self, states: Tensor) -> Tensor:
        """Return the first state of each text: [B, T, D] -> [N, D]."""
        flat = states.flatten(0, 1)
        return flat.index_select(0, self.starts.clamp(max=len(flat) - 1))

    def real(self, tokens: int) -> Tensor:
        """Return which tokens of the unpacked rows are real: [N, T]."""
        return torch.arange(tokens, device=self.lengths.device) < self.lengths[:, None]

    def unpack(self, x: Tensor) -> Tensor:
        """Give each text a row of its own, padded with zeros: [B, T, …] -> [N, T, …]."""
        flat, tokens = x.flatten(0, 1), x.shape[1]
        places = self.starts[:, None] + torch.arange(tokens, device=x.device)  # [N, T]
        chosen = flat.index_select(0, places.clamp(max=len(flat) - 1).flatten())
        rows: Tensor = chosen.unflatten(0, places.shape)
        padding = ~self.real(tokens)
        return rows.masked_fill(padding.reshape(*padding.shape, *(1,) * (rows.dim() - 2)), 0)

    def pool(self, states: Tensor, pool: Literal["mean", "max"], texts: Tensor) -> Tensor:
        """Pool the states of each text: [B, T, D] -> [N, D].

        texts [B, T]: the number of each token's text, 0 in the padding.
        """
        neutral = 0.0 if pool == "mean" else float("-inf")
        flat = states.masked_fill((texts == 0).unsqueeze(-1), neutral).flatten(0, 1)
        # A bag reaches to the start of the next text; the padding in it is neutral. Unlike a scatter, bags have a fixed
        # order of summation on a GPU.
        every = torch.arange(len(flat), device=flat.device)
        # Bags are in the order of their places, and the first one starts at 0: that one is empty if a text does, too.
        starts, order = self.starts.sort()
        bags = F.embedding_bag(every, flat, F.pad(starts, (1, 0)), mode="sum" if pool == "mean" else "max")
        pooled = bags.index_select(0, order.argsort() + 1)
        return pooled / self.lengths.clamp(min=1).unsqueeze(-1) if pool == "mean" else pooled


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
