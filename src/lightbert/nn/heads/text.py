"""Heads with one output per text, computed from [CLS] or from all tokens of the text."""

import torch
from torch import Tensor, nn

from lightbert.errors import InputError, unknown
from lightbert.nn.activations import activation
from lightbert.nn.packed import PackedTexts
from lightbert.nn.pooling import TEXT_POOLS, TextPool, pool_texts, pooled_width


class Pooler(nn.Module):
    """BERT's pooler, the tanh of a dense layer on [CLS]; needed to write imported weights back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, states: Tensor, *, mask: Tensor | None = None, places: PackedTexts | None = None) -> Tensor:
        """[..., T, D] to [..., D]; `mask` and `places` as of `TextHead`."""
        return torch.tanh(self.dense(pool_texts(states, "cls", mask, places)))


class TextHead(nn.Module):
    """One vector per text to `outputs` numbers: the base class of the heads below.

    `pool` computes the vector from the states of the text (`lightbert.nn.pooling`); "cls", as published, reads [CLS].
    `hidden` selects one of the published variants:
    None      dropout, output                      ELECTRA, ConvBERT and MobileBERT as released
    "tanh"    dense, tanh, dropout, output         BERT's pooler; the composite paper
    "gelu"    dropout, dense, gelu, dropout, output   the transformers port of ConvBERT and ELECTRA
    """

    def __init__(
        self, width: int, outputs: int, *, hidden: str | None = None, dropout: float = 0.1, pool: TextPool = "cls"
    ) -> None:
        super().__init__()
        if hidden not in (None, "tanh", "gelu"):
            raise unknown("hidden layer", hidden, ("tanh", "gelu"))
        if pool not in TEXT_POOLS:
            raise unknown("pool", pool, TEXT_POOLS)
        pooled = pooled_width(width, pool)
        self.pool = pool
        self.before = nn.Dropout(dropout) if hidden == "gelu" else nn.Identity()
        self.dense = nn.Linear(pooled, width) if hidden else None
        self.activation = nn.Tanh() if hidden == "tanh" else activation("gelu")
        self.after = nn.Dropout(dropout)
        self.output = nn.Linear(width if hidden else pooled, outputs)

    def forward(self, states: Tensor, *, mask: Tensor | None = None, places: PackedTexts | None = None) -> Tensor:
        """[..., T, D] to [..., outputs].

        mask [..., T]: 0 in the padding; None = nothing is padded.
        places: where the texts of packed rows are, which the mask numbers: [B, T, D] to [N, outputs].
        """
        vector = pool_texts(states, self.pool, mask, places)
        if self.dense is not None:
            vector = self.activation(self.dense(self.before(vector)))
        logits: Tensor = self.output(self.after(vector))
        return logits


class Classification(TextHead):
    """One logit per label for each text."""

    def __init__(
        self, width: int, labels: int, *, hidden: str | None = None, dropout: float = 0.1, pool: TextPool = "cls"
    ) -> None:
        if labels < 2:
            raise InputError(f"labels must be >= 2, got {labels}; use the regress head for a single number")
        super().__init__(width, labels, hidden=hidden, dropout=dropout, pool=pool)


class Projection(TextHead):
    """A vector of another size for each text, such as that of a teacher."""

    def __init__(self, width: int, size: int, *, pool: TextPool = "mean") -> None:
        if size < 1:
            raise InputError(f"size must be >= 1, got {size}")
        super().__init__(width, size, dropout=0.0, pool=pool)


class NextSentence(TextHead):
    """Two logits in BERT's order: 0 = the second segment follows the first, 1 = it doesn't.

    `pooled` is BERT's and IB-BERT's head; MobileBERT as released reads the raw [CLS] state.
    """

    def __init__(self, width: int, *, pooled: bool = True) -> None:
        super().__init__(width, 2, hidden="tanh" if pooled else None, dropout=0.0)


class Regression(TextHead):
    """One unbounded number per text."""

    def __init__(self, width: int, *, hidden: str | None = None, dropout: float = 0.1, pool: TextPool = "cls") -> None:
        super().__init__(width, 1, hidden=hidden, dropout=dropout, pool=pool)

    def forward(self, states: Tensor, *, mask: Tensor | None = None, places: PackedTexts | None = None) -> Tensor:
        """[..., T, D] to [...]."""
        return super().forward(states, mask=mask, places=places).squeeze(-1)


class MultipleChoice(TextHead):
    """One score per choice; each choice is a separate text.

    Deviation: reads [CLS]. The transformers port of ConvBERT reads the last position, which is padding for all but
    the longest choice.
    """

    def __init__(self, width: int, *, hidden: str | None = None, dropout: float = 0.1) -> None:
        super().__init__(width, 1, hidden=hidden, dropout=dropout)

    def forward(
        self,
        states: Tensor,
        choices: int | None = None,
        *,
        mask: Tensor | None = None,
        places: PackedTexts | None = None,
    ) -> Tensor:
        """States [B, C, T, D], or [B·C, T, D] with the number of `choices`, to logits [B, C]."""
        if states.dim() == 3 and choices is None:
            raise InputError("choices is required for states of shape [texts, tokens, width]")
        scores = super().forward(states, mask=mask, places=places).squeeze(-1)
        return scores if choices is None else scores.reshape(-1, choices)
