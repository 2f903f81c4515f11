"""BERT and ELECTRA, the baseline of the papers."""

from dataclasses import dataclass

from lightbert.models.architecture import Architecture


@dataclass(frozen=True)
class Bert(Architecture):
    """Self-attention in post-norm blocks; embeddings are projected if ``narrow`` differs from ``width`` (ELECTRA)."""
