"""Choosing the tokens to predict, on the device of the ids: static shapes, no wait for the host.

Every choice is a function of (seed, step, row, column), so that a batch is masked alike however it is shared out.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from lightbert.data.batches.batch import Batch, Specials
from lightbert.data.batches.masking_settings import Masking
from lightbert.data.batches.whole_words import choose_words
from lightbert.ops.randomness import Stream, bits, chance


class MaskedTokens(NamedTuple):
    """The ids a model reads, and what it has to predict: positions ascend, then filler with position 0 and weight 0."""

    ids: Tensor  # [B, T]
    positions: Tensor  # [B, P] int64
    targets: Tensor  # [B, P] int64
    weights: Tensor  # [B, P] float32


def mask_tokens(
    ids: Tensor,
    mask: Tensor,
    masking: Masking,
    specials: Specials,
    *,
    vocab: int,
    seed: int,
    step: int | Tensor,
    rows: Tensor,
    continues: Tensor | None = None,
) -> MaskedTokens:
    """Mask ids [B, T] whose `mask` is not 0 and which are no specials; `rows` [B] are the rows of the whole batch.

    `continues` [V] says which entries of the vocabulary go on with a word, and asks for whole words (`word_parts`).
    """
    length = ids.shape[1]
    most = masking.positions(length)
    columns = torch.arange(length, device=ids.device)

    def draws(stream: Stream) -> Tensor:
        return bits(seed, stream, step, rows[:, None], columns)  # [B, T]

    real = mask != 0
    candidates = real & (ids != specials.cls) & (ids != specials.sep) & (ids != specials.mask)
    # In float64 because a GPU and a CPU agree on it to the last bit.
    budget = (real.sum(dim=1, keepdim=True).double() * masking.rate).round().long().clamp(1, most)  # [B, 1]
    if continues is None:
        chosen = _tokens(candidates, draws(Stream.POSITION), budget, most)
    else:
        chosen = choose_words(candidates, continues[ids], draws(Stream.POSITION), budget)

    style = draws(Stream.STYLE)
    hidden = ids.masked_fill(chosen & (style < chance(masking.masked)), specials.mask)
    if masking.random:
        swapped = (style >= chance(masking.masked)) & (style < chance(masking.masked + masking.random))
        hidden = torch.where(chosen & swapped, draws(Stream.REPLACEMENT) * vocab >> 32, hidden)

    positions = torch.where(chosen, columns, length).topk(most, largest=False).values
    filled = positions < length
    positions = positions.masked_fill(~filled, 0)
    return MaskedTokens(hidden, positions, ids.gather(1, positions), filled.float())


def mask_batch(
    batch: Batch, masking: Masking, specials: Specials, *, vocab: int, seed: int, continues: Tensor | None = None
) -> Batch:
    """Mask a batch by its own step and rows."""
    masked = mask_tokens(
        batch.ids,
        batch.mask,
        masking,
        specials,
        vocab=vocab,
        seed=seed,
        step=batch.step,
        rows=batch.rows,
        continues=continues,
    )
    return replace(batch, **masked._asdict())


def fill_positions(ids: Tensor, positions: Tensor, weights: Tensor, values: Tensor) -> Tensor:
    """Write `values` [B, P] into ids [B, T] at the positions with a non-zero weight, in the order of `MaskedTokens`."""
    length = ids.shape[1]
    columns = torch.arange(length, device=ids.device).expand_as(ids).contiguous()
    # Filler belongs to no column, and above all not to 0, where it could overwrite what belongs there.
    places = torch.where(weights != 0, positions, length)
    nearest = torch.searchsorted(places, columns).clamp(max=places.shape[1] - 1)
    return torch.where(places.gather(1, nearest) == columns, values.gather(1, nearest), ids)


def _tokens(candidates: Tensor, draws: Tensor, budget: Tensor, most: int) -> Tensor:
    """Choose `budget` candidates per row, those with the highest draws."""
    columns = torch.arange(candidates.shape[1], device=candidates.device)
    # The column makes keys differ, so that every device agrees on the highest.
    keys = torch.where(candidates, draws << 16 | columns, -1)
    lowest = keys.topk(most).values.gather(1, budget - 1)
    return candidates & (keys >= lowest)
