"""Whole-word masking."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

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
