"""A linear model of words inside of a network: TF-IDF of word pieces and of pairs of neighbours, read from the ids.

The scores of a text are Σ weight[feature] / √(Σ size[feature]), where the features are its pieces and pairs, `size` is
the squared length of a feature's vector, and `weight` its vector times the linear model. What a piece shares with
others, such as n-grams of characters, is part of its vector, so that it costs nothing to compute.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.init import Constant, Initial
from lightbert.nn.pooling import PackedTexts

SLOTS = 262_139
"""The number of slots of the hash table of pairs; a prime."""


class Words(nn.Module):
    """Ids [B, T] to scores [B, outputs].

    vocab: the number of word pieces. pairs: the number of known pairs of neighbours.
    """

    slots: Tensor
    keys: Tensor

    def __init__(self, vocab: int, pairs: int, outputs: int) -> None:
        super().__init__()
        if min(vocab, outputs) < 1 or pairs < 0:
            raise InputError(f"vocab and outputs must be >= 1 and pairs >= 0, got {vocab}, {outputs} and {pairs}")
        self.vocab = vocab
        # The last column is the size. Row 0 of the pairs is that of unknown pairs.
        self.pieces = nn.Parameter(torch.zeros(vocab, outputs + 1))
        self.pairs = nn.Parameter(torch.zeros(1 + pairs, outputs + 1))
        self.register_buffer("slots", torch.zeros(SLOTS, dtype=torch.int32))
        self.register_buffer("keys", torch.zeros(1 + pairs, dtype=torch.int64))

    def initial_weights(self) -> Initial:
        """Zeros: the scores are 0 until the tables are set."""
        return {"pieces": Constant(0.0), "pairs": Constant(0.0)}

    def set_pairs(self, keys: Tensor) -> Tensor:
        """Set the known pairs by their keys [pairs], in order of importance; return their rows, 0 if there is no room.

        The key of a pair is first · vocab + second. Of pairs that share a slot, the first is known.
        """
        used, first = torch.unique(keys % SLOTS, return_inverse=True)
        order = torch.full_like(used, len(keys)).scatter_reduce(0, first, torch.arange(len(keys)), "amin")
        rows = torch.zeros_like(keys)
        rows[order] = order + 1
        self.slots.zero_()
        self.slots[used] = (order + 1).to(torch.int32)
        # -1 is the key of no pair.
        self.keys.fill_(-1)
        self.keys[1:] = keys
        return rows

    def forward(self, ids: Tensor, mask: Tensor | None = None, places: PackedTexts | None = None) -> Tensor:
        """Compute the scores; mask and places as of `TextHead`: packed rows give [N, outputs]."""
        if places is not None:
            ids, mask = places.unpack(ids), places.real(ids.shape[1])
        pieces, known = F.embedding(ids, self.pieces), self._rows(ids)
        pairs = F.embedding(known if mask is None else known * (mask[:, 1:] != 0), self.pairs)
        if mask is not None:
            pieces = pieces * (mask != 0).unsqueeze(-1)
        total = pieces.sum(1) + pairs.sum(1)
        # A text without known features has the scores 0.
        return total[:, :-1] / total[:, -1:].clamp(min=1e-12).sqrt()

    def _rows(self, ids: Tensor) -> Tensor:
        """The row of each pair of neighbours [B, T - 1]; 0 for unknown ones."""
        keys = ids[:, :-1] * self.vocab + ids[:, 1:]
        rows = F.embedding(keys % SLOTS, self.slots.unsqueeze(-1)).squeeze(-1).to(torch.int64)
        return rows * (F.embedding(rows, self.keys.unsqueeze(-1)).squeeze(-1) == keys)
