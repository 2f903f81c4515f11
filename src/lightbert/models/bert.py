"""BERT and ELECTRA, the baseline of the papers, and its encoder with any mixer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lightbert.config import Depth, Dimension, NonNegative, OptionalDimension, PartialShare
from lightbert.nn.attention import Mixer, SelfAttention
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
        return post_norm_encoder(self, lambda: SelfAttention(self.width, self.n_heads, dropout=self.attention_dropout))


def post_norm_encoder(
    config: Any, mixer: Callable[[], Mixer], *, groups: int = 1, released_padding: bool = False
) -> Encoder:
    """BERT's encoder with any mixer, one per block; `config` has the fields of `Bert`."""
    norm = layer_norm(config.eps)
    embeddings = Embeddings(
        config.vocab,
        config.narrow,
        config.width,
        positions=config.positions,
        segments=config.segments,
        norm=norm,
        dropout=config.dropout,
    )
    blocks = [
        PostNormBlock(
            config.width,
            mixer=mixer(),
            feedforward=FeedForward(
                config.width,
                config.inner,
                activation=config.activation,
                norm=norm,
                groups=groups,
                dropout=config.dropout,
            ),
            norm=norm,
            dropout=config.dropout,
        )
        for _ in range(config.depth)
    ]
    return Encoder(
        embeddings, blocks, width=config.width, positions=config.positions, released_padding=released_padding
    )
