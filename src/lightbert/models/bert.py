"""BERT and ELECTRA: the baseline of the papers."""

from dataclasses import dataclass

from lightbert.config import Depth, Dimension, NonNegative, OptionalDimension, PartialShare
from lightbert.nn.attention import SelfAttention
from lightbert.nn.blocks import PostNormBlock
from lightbert.nn.embeddings import Embeddings
from lightbert.nn.encoder import Encoder
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.norms import layer_norm


@dataclass(frozen=True)
class Bert:
    """Self-attention in post-norm blocks; embeddings are projected if ``narrow`` differs from ``width`` (ELECTRA)."""

    vocab: Dimension = 30522
    positions: OptionalDimension = 512
    segments: Dimension = 2
    narrow: Dimension = 768
    width: Dimension = 768
    depth: Depth = 12
    n_heads: Dimension = 12
    inner: Dimension = 3072
    activation: str = "gelu"
    dropout: PartialShare = 0.1
    attention_dropout: PartialShare = 0.1
    eps: NonNegative = 1e-12

    def build(self) -> Encoder:
        """Construct the modules."""
        norm = layer_norm(self.eps)
        embeddings = Embeddings(
            self.vocab,
            self.narrow,
            self.width,
            positions=self.positions,
            segments=self.segments,
            norm=norm,
            dropout=self.dropout,
        )
        blocks = [
            PostNormBlock(
                self.width,
                mixer=SelfAttention(self.width, self.n_heads, dropout=self.attention_dropout),
                feedforward=FeedForward(
                    self.width, self.inner, activation=self.activation, norm=norm, dropout=self.dropout
                ),
                norm=norm,
                dropout=self.dropout,
            )
            for _ in range(self.depth)
        ]
        return Encoder(embeddings, blocks, width=self.width, positions=self.positions)
