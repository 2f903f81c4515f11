"""A Record collects what happens inside a forward pass, for those who ask for it."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Record:
    """Lists that the parts append to, layer by layer. Set one to None to leave it out.

    A part that must show its attention computes it openly; without a record it takes the fused path, which never
    writes a square of scores.
    """

    states: list[Tensor] | None = field(default_factory=list)
    """After the embeddings and after each block: depth + 1 tensors [B, T, D]."""
    attention: list[Tensor] | None = field(default_factory=list)
    """Attention probabilities of each block: [B, H, T, T]."""
    kernels: list[Tensor] | None = field(default_factory=list)
    """The kernels of dynamic convolutions, one distribution per token and head: [B, T, H, K]."""
    scores: list[Tensor] | None = None
    """Attention scores of each block before the softmax, hidden keys at -inf: [B, H, T, T]. Off unless asked for."""
