"""Any mixer in any block: the one config that selects its parts by name. It is built in Python; no preset has it."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from lightbert.config import Depth, Dimension, NonNegative, OptionalDimension, PartialShare
from lightbert.errors import InputError
from lightbert.models.convbert import Convolution, mixed_attention
from lightbert.nn.attention import Mixer, SelfAttention
from lightbert.nn.blocks import BottleneckBlock, PostNormBlock
from lightbert.nn.composite import CompositeAttention, LocalAttention
from lightbert.nn.embeddings import Embeddings, TrigramEmbeddings
from lightbert.nn.encoder import Encoder
from lightbert.nn.feedforward import FeedForward
from lightbert.nn.norms import NoNorm, Norm, layer_norm


@dataclass(frozen=True)
class Hybrid:
    """A model from parts. ``block_width`` must be < ``width`` for "bottleneck", > ``width`` for "inverted", else 0.

    ``groups`` > 1 selects grouped feed-forwards; ``feedforwards`` is their number per block.
    """

    mixer: Literal["attention", "mixed", "composite", "local"] = "mixed"
    shell: Literal["post-norm", "bottleneck", "inverted"] = "post-norm"
    norm: Literal["layer", "none"] = "layer"
    embeddings: Literal["plain", "factorized", "trigram"] = "factorized"
    vocab: Dimension = 30522
    positions: OptionalDimension = 512
    segments: Dimension = 2
    narrow: Dimension = 128
    width: Dimension = 256
    block_width: OptionalDimension = 0
    depth: Depth = 12
    n_heads: Dimension = 4
    inner: Dimension = 1024
    groups: Dimension = 1
    feedforwards: Dimension = 1
    mixer_input: Literal["narrow", "shared", "wide"] = "shared"
    head_ratio: Dimension = 2
    kernel: Dimension = 9
    convolution: Convolution = "span"
    radius: OptionalDimension = 8
    fixed: bool = True
    query_dynamic: bool = True
    key_dynamic: bool = False
    outside: Literal["clamp", "zero"] = "clamp"
    depthwise: bool = False
    convolved: Literal["", "qk", "v", "qkv"] = ""
    indexed_by: Literal["query", "key"] = "query"
    activation: str = "gelu"
    dropout: PartialShare = 0.1
    attention_dropout: PartialShare = 0.1
    eps: NonNegative = 1e-12
    padding: Literal["masked", "released"] = "masked"

    def build(self) -> Encoder:
        """Construct the modules; incompatible parts raise an InputError with both numbers."""
        norm = NoNorm if self.norm == "none" else layer_norm(self.eps)
        return Encoder(
            self._embeddings(norm),
            [self._block(norm) for _ in range(self.depth)],
            width=self.width,
            positions=self.positions,
            released_padding=self.padding == "released",
            fp16=self.norm == "layer",
        )

    def _embeddings(self, norm: Norm) -> nn.Module:
        if (self.embeddings == "plain") != (self.narrow == self.width) and self.embeddings != "trigram":
            raise InputError(
                f"{self.embeddings} embeddings require narrow {'==' if self.embeddings == 'plain' else '!='} width, "
                f"got narrow = {self.narrow} and width = {self.width}"
            )
        part = TrigramEmbeddings if self.embeddings == "trigram" else Embeddings
        return part(
            self.vocab,
            self.narrow,
            self.width,
            positions=self.positions,
            segments=self.segments,
            norm=norm,
            dropout=self.dropout,
        )

    def _block(self, norm: Norm) -> nn.Module:
        inside = self.width if self.shell == "post-norm" else self.block_width
        fits, rule = {
            "post-norm": (self.block_width == 0, "0"),
            "bottleneck": (0 < inside < self.width, f"> 0 and < {self.width}"),
            "inverted": (inside > self.width, f"> {self.width}"),
        }[self.shell]
        if not fits:
            raise InputError(f"block_width must be {rule} with shell = {self.shell!r}, got {self.block_width}")
        stack = [
            FeedForward(
                inside,
                self.inner,
                activation=self.activation,
                norm=norm,
                groups=self.groups,
                dropout=self.dropout if self.shell == "post-norm" else 0.0,
            )
            for _ in range(self.feedforwards)
        ]
        feedforward = stack[0] if len(stack) == 1 else nn.Sequential(*stack)
        if self.shell == "post-norm":
            return PostNormBlock(
                self.width,
                mixer=self._mixer(self.width, self.width, None),
                feedforward=feedforward,
                norm=norm,
                dropout=self.dropout,
            )
        return BottleneckBlock(
            self.width,
            inside,
            mixer=self._mixer(
                self.width if self.mixer_input == "wide" else inside,
                inside,
                self.width if self.mixer_input == "shared" else None,
            ),
            mixer_input=self.mixer_input,
            feedforward=feedforward,
            norm=norm,
            dropout=self.dropout,
        )

    def _mixer(self, reads: int, inside: int, value_width: int | None) -> Mixer:
        """Build the mixer of one block: its input has ``reads`` channels, its heads have ``inside`` in total."""
        if inside % self.n_heads:
            raise InputError(f"n_heads ({self.n_heads}) must divide the width, {inside}")
        head_width, dropout = inside // self.n_heads, self.attention_dropout
        match self.mixer:
            case "attention":
                return SelfAttention(
                    reads, self.n_heads, head_width=head_width, value_width=value_width, dropout=dropout
                )
            case "mixed":
                return mixed_attention(
                    reads,
                    self.n_heads,
                    head_ratio=self.head_ratio,
                    kernel=self.kernel,
                    convolution=self.convolution,
                    head_width=head_width,
                    value_width=value_width,
                    dropout=dropout,
                )
            case "composite":
                return CompositeAttention(
                    reads,
                    self.n_heads,
                    radius=self.radius,
                    head_width=head_width,
                    value_width=value_width,
                    fixed=self.fixed,
                    query_dynamic=self.query_dynamic,
                    key_dynamic=self.key_dynamic,
                    outside=self.outside,
                    depthwise=self.depthwise,
                    convolved=self.convolved,
                    dropout=dropout,
                )
            case "local":
                return LocalAttention(
                    reads,
                    self.n_heads,
                    kernel=self.kernel,
                    indexed_by=self.indexed_by,
                    value_width=value_width,
                    dropout=dropout,
                )
