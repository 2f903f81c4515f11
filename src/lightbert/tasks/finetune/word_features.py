"""TF-IDF of word pieces, pairs of neighbours, and characters of pieces, as `lightbert.nn.words.Words` computes it."""

import warnings
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lightbert.nn.words import Words

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CHARACTERS = range(2, 6)
"""The lengths of the n-grams of characters of a piece, with a space at each end."""
_FEW_ROWS = 500
"""With more texts than this, a pair must occur in two of them."""


class WordFeatures:
    """The features of texts, fitted on some of them.

    The frequencies are those of all texts, as labels aren't needed for them.
    rows: the tokens of each text.
    """

    def __init__(self, tokenizer: "Tokenizer", vocab: int, rows: Sequence[NDArray[Any]]) -> None:
        self.vocab, self.count = vocab, len(rows)
        text, ids = _indices(rows)
        pieces = _count(text, ids, (self.count, vocab))
        self._piece_idf = self._idf(pieces)
        keys, ends = ids[:-1] * vocab + ids[1:], text[1:] == text[:-1]
        keys, owner = keys[ends], text[:-1][ends]
        known, frequency = torch.unique(torch.stack([keys, owner]), dim=1)[0].unique(return_counts=True)
        enough = frequency >= (2 if self.count > _FEW_ROWS else 1)
        known, frequency = known[enough], frequency[enough]
        known = known[torch.argsort(frequency, descending=True, stable=True)]
        self._layer = Words(vocab, len(known), 1)
        self._pair_rows = self._layer.set_pairs(known)
        pairs = self._pairs(owner, keys)
        self._pair_idf = self._idf(pairs)
        self._tokenizer, self._columns = tokenizer, dict[str, int]()
        seen = torch.unique(ids).tolist()
        grams = self._character_grams(seen, add=True)
        self._gram_idf = self._idf(_product(pieces, grams))
        grams = _scale_columns(grams, self._gram_idf)
        # Pieces and pairs count as much as characters.
        squares = self._piece_idf.square(), self._pair_idf.square()
        total = (pieces @ squares[0]).sum() + (pairs @ squares[1]).sum()
        share = total / (pieces @ _squares(grams)).sum().clamp(min=1e-12)
        self._gram_idf *= share.sqrt()
        grams = _scale_columns(grams, share.sqrt().expand(grams.shape[1]))
        sizes = pieces @ (squares[0] + _squares(grams)) + pairs @ squares[1]
        scale = sizes.clamp(min=1e-12).rsqrt()
        parts = _scale_columns(pieces, self._piece_idf), _scale_columns(pairs, self._pair_idf), _product(pieces, grams)
        whole = torch.cat(parts, 1).coalesce()
        self.matrix = _sparse(whole.indices(), whole.values() * scale[whole.indices()[0]], whole.shape)
        """[N, features]"""

    @property
    def pairs(self) -> int:
        """The number of known pairs."""
        return len(self._pair_rows)

    def gram(self) -> Tensor:
        """The Gram matrix [N, N]."""
        return _product(self.matrix, self.matrix.t().coalesce()).to_dense()

    def layer(self, coefficients: Tensor) -> Words:
        """The layer that computes the scores of a linear model with these coefficients [N, C]."""
        weight = self.matrix.t() @ coefficients
        pieces, pairs, grams = weight.split([self.vocab, self.pairs + 1, len(self._columns)])
        table = self._gram_table
        sizes = self._piece_idf.square() + _squares(table), self._pair_idf.square()
        layer = Words(self.vocab, self.pairs, weight.shape[1])
        scores = self._piece_idf.unsqueeze(1) * pieces + table @ grams, self._pair_idf.unsqueeze(1) * pairs
        with torch.no_grad():
            for parameter, score, size in zip((layer.pieces, layer.pairs), scores, sizes, strict=True):
                parameter.copy_(torch.cat([score, size.unsqueeze(1)], 1))
        layer.slots.copy_(self._layer.slots)
        layer.keys.copy_(self._layer.keys)
        return layer

    @cached_property
    def _gram_table(self) -> Tensor:
        """The n-grams of each piece of the vocabulary, also of those that no text has."""
        return _scale_columns(self._character_grams(range(self.vocab), add=False), self._gram_idf)

    def _character_grams(self, pieces: Iterable[int], *, add: bool) -> Tensor:
        """How often each n-gram occurs in each piece [V, n-grams]; none in special tokens.

        add: with the n-grams that aren't known yet; otherwise they are left out.
        """
        special = {token.content for token in self._tokenizer.get_added_tokens_decoder().values()}
        rows, columns = list[int](), list[int]()
        for index in pieces:
            piece = self._tokenizer.id_to_token(index)
            if piece is None or piece in special:
                continue
            text = f"{piece[2:] if piece.startswith('##') else ' ' + piece} ".replace("▁", " ").lower()
            grams = [text[start : start + size] for size in _CHARACTERS for start in range(len(text) - size + 1)]
            for gram in grams:
                column = self._columns.setdefault(gram, len(self._columns)) if add else self._columns.get(gram, -1)
                if column >= 0:
                    rows.append(index)
                    columns.append(column)
        return _count(torch.tensor(rows), torch.tensor(columns), (self.vocab, len(self._columns)))

    def _pairs(self, owner: Tensor, keys: Tensor) -> Tensor:
        """The number of times each known pair occurs in each text; column 0 is empty."""
        slots = self._layer.slots[keys % len(self._layer.slots)].long()
        known = self._layer.keys[slots] == keys
        return _count(owner[known], slots[known], (self.count, 1 + self.pairs))

    def _idf(self, counts: Tensor) -> Tensor:
        """The inverse document frequency of each feature, smoothed as in scikit-learn; 0 if it doesn't occur."""
        frequency = torch.bincount(counts.indices()[1], minlength=counts.shape[1])
        idf = ((1 + self.count) / (1 + frequency)).log() + 1
        return torch.where(frequency > 0, idf, 0.0)


def _indices(rows: Sequence[NDArray[Any]]) -> tuple[Tensor, Tensor]:
    lengths = [len(row) for row in rows]
    return torch.repeat_interleave(torch.tensor(lengths)), torch.from_numpy(np.concatenate(rows).astype(np.int64))


def _sparse(indices: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.sparse_coo_tensor(indices, values, shape, check_invariants=False).coalesce()


def _count(text: Tensor, feature: Tensor, shape: tuple[int, int]) -> Tensor:
    indices = torch.stack([text, feature])
    return _sparse(indices, torch.ones(indices.shape[1]), shape)


def _scale_columns(matrix: Tensor, factors: Tensor) -> Tensor:
    return _sparse(matrix.indices(), matrix.values() * factors[matrix.indices()[1]], matrix.shape)


def _squares(matrix: Tensor) -> Tensor:
    """The squared length of each row."""
    return torch.zeros(len(matrix)).index_add(0, matrix.indices()[0], matrix.values().square())


def _product(a: Tensor, b: Tensor) -> Tensor:
    with warnings.catch_warnings():
        # PyTorch computes it by way of another format, which is in beta.
        warnings.simplefilter("ignore")
        product: Tensor = torch.sparse.mm(a, b)
    return product.coalesce()
