"""BERT, and ELECTRA's shape of it: the baseline that the papers compare with."""

from dataclasses import dataclass

from lightbert.nn.attention import SelfAttention
from lightbert.nn.blocks import PostNormBlock
from lightbert.nn.embeddings import Embeddings
from lightbert.nn.encoder import Encoder
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.norms import layer_norm


@dataclass(frozen=True)
class Bert:
    """Self-attention in post-norm blocks; embeddings narrower than the stream are projected (ELECTRA)."""

    vocab: int = 30522
    positions: int = 512
    segments: int = 2
    narrow: int = 768
    width: int = 768
    depth: int = 12
    n_heads: int = 12
    inner: int = 3072
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    eps: float = 1e-12

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
