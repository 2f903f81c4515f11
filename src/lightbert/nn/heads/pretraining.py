"""Pre-training heads: masked language modelling and replaced-token detection."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.activations import activation as activation_module
from lightbert.nn.distributions import Initial, glorot
from lightbert.nn.projections import project_and_activate, project_and_score


class MaskedLanguage(nn.Module):
    """Logits over the vocabulary, tied to the word embeddings (BERT §3.1; MobileBERT's released decoder).

    `forward` takes the embedding table as an argument, so that the parameter belongs to the embeddings alone.
    If `hidden` > `narrow`, the decoder is the tied table plus an untied matrix `extra`: 512 = 128 + 384 in MobileBERT.
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
            raise InputError(f"hidden ({hidden}) must be >= the width of the word embeddings ({narrow})")
        self.narrow = narrow
        self.transform = nn.Linear(width, hidden)
        self.activation = activation_module(activation)
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.extra = nn.Parameter(torch.empty(vocab, hidden - narrow)) if hidden > narrow else None

    def features(self, states: Tensor) -> Tensor:
        """States [..., D] to the input of the decoder [..., hidden]."""
        features: Tensor = self.norm(project_and_activate(states, self.transform, self.activation))
        return features

    def decoder(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """The weight [V, hidden] and the bias [V] of the decoder as one linear layer."""
        return table if self.extra is None else torch.cat([table, self.extra], dim=1), self.bias

    def forward(self, states: Tensor, table: Tensor) -> Tensor:
        """States [..., D] to logits [..., V]; gather the masked positions first, because the logits are expensive."""
        features = self.features(states)
        if self.extra is None:
            return F.linear(features, table, self.bias)
        tied, untied = features[..., : self.narrow], features[..., self.narrow :]
        return F.linear(tied, table, self.bias) + F.linear(untied, self.extra)


class ReplacedToken(nn.Module):
    """One logit per token, high if the generator replaced it (ELECTRA §2; ConvBERT §4.1)."""

    def __init__(self, width: int, *, activation: str = "gelu") -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = activation_module(activation)
        self.output = nn.Linear(width, 1)

    def initial_weights(self) -> Initial:
        """Glorot-uniform for the output layer: TensorFlow's default, as released."""
        return {"output.weight": glorot(self.output.weight)}

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] to [...]."""
        return project_and_score(states, self.dense, self.activation, self.output)
