"""MobileBERT and its inverted-bottleneck teacher IB-BERT: bottleneck blocks, narrower or wider inside than outside."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from lightbert.config import Depth, Dimension, NonNegative, OptionalDimension, PartialShare
from lightbert.errors import InputError
from lightbert.nn.attention import SelfAttention
from lightbert.nn.blocks import BottleneckBlock
from lightbert.nn.embeddings import TrigramEmbeddings
from lightbert.nn.encoder import Encoder
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.norms import NoNorm, layer_norm


@dataclass(frozen=True)
class MobileBert:
    """``width`` is the width between blocks, ``block_width`` inside them, ``narrow`` that of the word embeddings.

    Dropout applies to the embeddings and to the output projection of each block only, as in the released code.
    """

    vocab: Dimension = 30522
    positions: OptionalDimension = 512
    segments: Dimension = 2
    narrow: Dimension = 128
    width: Dimension = 512
    block_width: OptionalDimension = 128
    depth: Depth = 24
    n_heads: Dimension = 4
    inner: Dimension = 512
    feedforwards: Dimension = 4
    mixer_input: Literal["narrow", "shared", "wide"] = "shared"
    norm: Literal["none", "layer"] = "none"
    padding: Literal["masked", "released"] = "masked"
    activation: str = "relu"
    dropout: PartialShare = 0.0
    attention_dropout: PartialShare = 0.1
    eps: NonNegative = 1e-12

    def build(self) -> Encoder:
        """Construct the modules."""
        if self.block_width % self.n_heads:
            raise InputError(f"n_heads ({self.n_heads}) must divide block_width ({self.block_width})")
        norm = NoNorm if self.norm == "none" else layer_norm(self.eps)
        embeddings = TrigramEmbeddings(
            self.vocab,
            self.narrow,
            self.width,
            positions=self.positions,
            segments=self.segments,
            norm=norm,
            dropout=self.dropout,
        )
        blocks = [
            BottleneckBlock(
                self.width,
                self.block_width,
                mixer=SelfAttention(
                    self.width if self.mixer_input == "wide" else self.block_width,
                    self.n_heads,
                    head_width=self.block_width // self.n_heads,
                    value_width=self.width if self.mixer_input == "shared" else None,
                    dropout=self.attention_dropout,
                ),
                mixer_input=self.mixer_input,
                feedforward=nn.Sequential(
                    *(
                        FeedForward(self.block_width, self.inner, activation=self.activation, norm=norm)
                        for _ in range(self.feedforwards)
                    )
                ),
                norm=norm,
                dropout=self.dropout,
            )
            for _ in range(self.depth)
        ]
        return Encoder(
            embeddings,
            blocks,
            width=self.width,
            positions=self.positions,
            released_padding=self.padding == "released",
            fp16=self.norm == "layer",
        )
