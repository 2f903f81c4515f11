"""Masking whole words instead of parts of them."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def word_parts(tokenizer: "Tokenizer") -> Tensor:
    """Return which entries of a vocabulary go on with a word: [V] bool.

    WordPiece marks them with ## in front; SentencePiece's models mark with ▁ the entries that don't.
    """
    vocabulary = [tokenizer.id_to_token(index) or "" for index in range(tokenizer.get_vocab_size())]
    if any(entry.startswith("▁") for entry in vocabulary):
        return torch.tensor([not entry.startswith("▁") for entry in vocabulary])
    return torch.tensor([entry.startswith("##") for entry in vocabulary])


def choose_words(candidates: Tensor, continues: Tensor, draws: Tensor, budget: Tensor) -> Tensor:
    """Choose words in random order until the next one would exceed the budget, then single-token words to fill it.

    No word is ever split: a row that runs out of single-token words has fewer predictions than the budget.
    """
    columns = torch.arange(candidates.shape[1], device=candidates.device)
    is_continuation = continues & F.pad(candidates, (1, 0))[:, :-1]
    # The column of the first token of each token's word.
    origin = torch.where(candidates & ~is_continuation, columns, 0).cummax(dim=1).values
    beyond = torch.where(candidates & is_continuation, len(columns), columns)[:, 1:]
    beyond = F.pad(beyond, (0, 1), value=len(columns)).flip(1).cummin(dim=1).values.flip(1)
    size = beyond - origin
    # Descending keys: words in the order of the draws of their first tokens, tokens of a word from left to right.
    keys = (draws.gather(1, origin) >> 1) << 32 | origin << 16 | columns.flip(0)
    keys, order = torch.where(candidates, keys, -1).sort(dim=1, descending=True)

    size, place = size.gather(1, order), order - origin.gather(1, order)
    whole = (keys >= 0) & (columns - place + size <= budget)
    single = (keys >= 0) & ~whole & (size == 1)
    left = budget - whole.sum(dim=1, keepdim=True)
    chosen = whole | (single & (single.cumsum(dim=1) <= left))
    # Not by scatter: compiled for a CPU (torch 2.13), what reads a scattered tensor can run before the scatter.
    return chosen.gather(1, order.argsort(dim=1))
