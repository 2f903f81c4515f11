"""Heads with one output per token."""

from torch import Tensor, nn


class TokenClassification(nn.Module):
    """Dropout and a dense layer on every state (BERT §5.3)."""

    def __init__(self, width: int, labels: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, labels)

    def forward(self, states: Tensor) -> Tensor:
        """[..., T, D] to [..., T, labels]."""
        logits: Tensor = self.output(self.dropout(states))
        return logits
