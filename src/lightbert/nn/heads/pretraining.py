"""The heads of pre-training: which word stood here, and was this word replaced."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.activations import activation as activation_module
from lightbert.nn.distributions import Initial, glorot


class MaskedLanguage(nn.Module):
    """Logits over the vocabulary, tied to the word table (BERT §3.1; MobileBERT's released decoder).

    The table is an argument of `forward`, so that it stays the embeddings' parameter and is counted once.
    A transform wider than the table (`hidden` > `narrow`) is decoded by two matmuls, the tied table and an
    untied `extra`: MobileBERT has 512 = 128 + 384.
    """

    def __init__(
        self,
        width: int,
        vocab: int,
        narrow: int,
        *,
        hidden: int | None = None,
        activation: str = "gelu",
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        hidden = narrow if hidden is None else hidden
        if hidden < narrow:
            raise InputError(f"the MLM head's hidden width {hidden} is below the word table's width {narrow}")
        self.narrow = narrow
        self.transform = nn.Linear(width, hidden)
        self.activation = activation_module(activation)
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.extra = nn.Parameter(torch.empty(vocab, hidden - narrow)) if hidden > narrow else None

    def forward(self, states: Tensor, table: Tensor) -> Tensor:
        """`states` may be any selection of positions: gather the masked ones first, logits are the dear part."""
        features = self.norm(self.activation(self.transform(states)))  # [..., hidden]
        if self.extra is None:
            return F.linear(features, table, self.bias)  # [..., V]
        tied, untied = features[..., : self.narrow], features[..., self.narrow :]
        return F.linear(tied, table, self.bias) + F.linear(untied, self.extra)  # [..., V]


class ReplacedToken(nn.Module):
    """One logit per token: was it replaced by the generator? (ELECTRA §2; ConvBERT §4.1)."""

    def __init__(self, width: int, *, activation: str = "gelu") -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = activation_module(activation)
        self.output = nn.Linear(width, 1)

    def initial_weights(self) -> Initial:
        """The release leaves the last dense at TensorFlow's default, Glorot-uniform."""
        return {"output.weight": glorot(self.output.weight)}

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] to [...]."""
        logits: Tensor = self.output(self.activation(self.dense(states)))
        return logits.squeeze(-1)
