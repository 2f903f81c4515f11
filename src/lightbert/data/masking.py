"""Masking tokens or whole words for pre-training, on the device, with static shapes and no host synchronization.

Every choice is a function of (seed, step, row, column), so masking does not depend on how a batch is distributed.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.data.batch import Batch
from lightbert.data.features import Specials
from lightbert.data.masking_settings import Masking
from lightbert.ops.randomness import Stream, bits, chance

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def word_parts(tokenizer: "Tokenizer") -> Tensor:
    """Return which entries of a vocabulary continue a word: [V] bool.

    In WordPiece these entries start with ##; in SentencePiece the other entries start with ▁.
    """
    vocabulary = [tokenizer.id_to_token(index) or "" for index in range(tokenizer.get_vocab_size())]
    if any(entry.startswith("▁") for entry in vocabulary):
        return torch.tensor([not entry.startswith("▁") for entry in vocabulary])
    return torch.tensor([entry.startswith("##") for entry in vocabulary])


def choose_words(candidates: Tensor, continues: Tensor, draws: Tensor, budget: Tensor) -> Tensor:
    """Choose words in random order until the next one would exceed the budget, then fill it with single-token words.

    Words are never split: a row without enough single-token words has fewer predictions than the budget.
    """
    columns = torch.arange(candidates.shape[1], device=candidates.device)
    is_continuation = continues & F.pad(candidates, (1, 0))[:, :-1]
    # The column of the first token of each token's word.
    origin = torch.where(candidates & ~is_continuation, columns, 0).cummax(dim=1).values
    beyond = torch.where(candidates & is_continuation, len(columns), columns)[:, 1:]
    beyond = F.pad(beyond, (0, 1), value=len(columns)).flip(1).cummin(dim=1).values.flip(1)
    size = beyond - origin
    # Descending keys: words are ordered by the draw of their first token, tokens of a word from left to right.
    keys = (draws.gather(1, origin) >> 1) << 32 | origin << 16 | columns.flip(0)
    keys, order = torch.where(candidates, keys, -1).sort(dim=1, descending=True)

    size, place = size.gather(1, order), order - origin.gather(1, order)
    whole = (keys >= 0) & (columns - place + size <= budget)
    single = (keys >= 0) & ~whole & (size == 1)
    left = budget - whole.sum(dim=1, keepdim=True)
    chosen = whole | (single & (single.cumsum(dim=1) <= left))
    # No scatter: when compiled for a CPU (torch 2.13), a read of a scattered tensor can run before the scatter.
    return chosen.gather(1, order.argsort(dim=1))


class MaskedTokens(NamedTuple):
    """The masked ids and the tokens to predict; positions are ascending, padded with position 0 and weight 0."""

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
    """Mask ids [B, T] where `mask` is not 0, except special tokens; `rows` [B] are row numbers in the whole batch.

    `continues` [V], from `word_parts`, marks the vocabulary entries that continue a word; if given, whole words are
    masked.
    """
    length = ids.shape[1]
    most = masking.positions(length)
    columns = torch.arange(length, device=ids.device)

    def draws(stream: Stream) -> Tensor:
        return bits(seed, stream, step, rows[:, None], columns)  # [B, T]

    real = mask != 0
    candidates = real & (ids != specials.cls) & (ids != specials.sep) & (ids != specials.mask)
    # In float64, which gives the same bits on a GPU and a CPU.
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
    """Mask a batch with its own step and row numbers."""
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
    # Padding must not match any column, in particular not column 0, where it would overwrite the real value.
    places = torch.where(weights != 0, positions, length)
    nearest = torch.searchsorted(places, columns).clamp(max=places.shape[1] - 1)
    return torch.where(places.gather(1, nearest) == columns, values.gather(1, nearest), ids)


def _tokens(candidates: Tensor, draws: Tensor, budget: Tensor, most: int) -> Tensor:
    """Choose the `budget` candidates with the highest draws in each row."""
    columns = torch.arange(candidates.shape[1], device=candidates.device)
    # The column makes the keys distinct, so that every device chooses the same ones.
    keys = torch.where(candidates, draws << 16 | columns, -1)
    lowest = keys.topk(most).values.gather(1, budget - 1)
    return candidates & (keys >= lowest)
