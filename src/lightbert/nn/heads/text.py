"""Heads with one output per text, computed from the [CLS] state."""

import torch
from torch import Tensor, nn

from lightbert.errors import InputError, unknown
from lightbert.nn.activations import activation


class Pooler(nn.Module):
    """BERT's pooler, the tanh of a dense layer on [CLS]; needed to write imported weights back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, states: Tensor) -> Tensor:
        """[..., T, D] to [..., D]."""
        return torch.tanh(self.dense(states[..., 0, :]))


class FirstState(nn.Module):
    """[CLS] to `outputs` numbers: the base class of the heads below.

    `hidden` selects one of the published variants:
    None      dropout, output                      ELECTRA, ConvBERT and MobileBERT as released
    "tanh"    dense, tanh, dropout, output         BERT's pooler; the composite paper
    "gelu"    dropout, dense, gelu, dropout, output   the transformers port of ConvBERT and ELECTRA
    """

    def __init__(self, width: int, outputs: int, *, hidden: str | None = None, dropout: float = 0.1) -> None:
        super().__init__()
        if hidden not in (None, "tanh", "gelu"):
            raise unknown("hidden layer", hidden, ("tanh", "gelu"))
        self.before = nn.Dropout(dropout) if hidden == "gelu" else nn.Identity()
        self.dense = nn.Linear(width, width) if hidden else None
        self.activation = nn.Tanh() if hidden == "tanh" else activation("gelu")
        self.after = nn.Dropout(dropout)
        self.output = nn.Linear(width, outputs)

    def forward(self, states: Tensor) -> Tensor:
        """[..., T, D] to [..., outputs]."""
        first = states[..., 0, :]
        if self.dense is not None:
            first = self.activation(self.dense(self.before(first)))
        logits: Tensor = self.output(self.after(first))
        return logits


class Classification(FirstState):
    """One logit per label for each text."""

    def __init__(self, width: int, labels: int, *, hidden: str | None = None, dropout: float = 0.1) -> None:
        if labels < 2:
            raise InputError(f"labels must be >= 2, got {labels}; use the regress head for a single number")
        super().__init__(width, labels, hidden=hidden, dropout=dropout)


class NextSentence(FirstState):
    """Two logits in BERT's order: 0 = the second segment follows the first, 1 = it doesn't.

    `pooled` is BERT's and IB-BERT's head; MobileBERT as released reads the raw [CLS] state.
    """

    def __init__(self, width: int, *, pooled: bool = True) -> None:
        super().__init__(width, 2, hidden="tanh" if pooled else None, dropout=0.0)


class Regression(FirstState):
    """One unbounded number per text."""

    def __init__(self, width: int, *, hidden: str | None = None, dropout: float = 0.1) -> None:
        super().__init__(width, 1, hidden=hidden, dropout=dropout)

    def forward(self, states: Tensor) -> Tensor:
        """[..., T, D] to [...]."""
        return super().forward(states).squeeze(-1)


class MultipleChoice(FirstState):
    """One score per choice; each choice is a separate text.

    Deviation: reads [CLS]. The transformers port of ConvBERT reads the last position, which is padding for all but
    the longest choice.
    """

    def __init__(self, width: int, *, hidden: str | None = None, dropout: float = 0.1) -> None:
        super().__init__(width, 1, hidden=hidden, dropout=dropout)

    def forward(self, states: Tensor, choices: int | None = None) -> Tensor:
        """States [B, C, T, D], or [B·C, T, D] with the number of `choices`, to logits [B, C]."""
        if states.dim() == 3 and choices is None:
            raise InputError("choices is required for states of shape [texts, tokens, width]")
        scores = super().forward(states).squeeze(-1)
        return scores if choices is None else scores.reshape(-1, choices)
