"""The models of the composite paper: self-attention with convolutions (Chang et al. 2021)."""

from dataclasses import dataclass
from typing import Literal

from lightbert.config import Depth, Dimension, NonNegative, OptionalDimension, PartialShare
from lightbert.models.bert import post_norm_encoder
from lightbert.nn.attention import Mixer
from lightbert.nn.composite import CompositeAttention, LocalAttention
from lightbert.nn.encoder import Encoder


@dataclass(frozen=True)
class Composite:
    """Each row of the paper's tables is a choice of terms. Without positions, the convolutions encode the order.

    ``local`` = "query" or "key" (as released) selects the paper's version of ConvBERT as the mixer.
    """

    vocab: Dimension = 30004
    positions: OptionalDimension = 0
    segments: Dimension = 2
    narrow: Dimension = 128
    width: Dimension = 256
    depth: Depth = 12
    n_heads: Dimension = 4
    inner: Dimension = 1024
    radius: OptionalDimension = 8
    fixed: bool = True
    query_dynamic: bool = True
    key_dynamic: bool = False
    outside: Literal["clamp", "zero"] = "clamp"
    depthwise: bool = False
    convolved: Literal["", "qk", "v", "qkv"] = ""
    local: Literal["none", "query", "key"] = "none"
    local_kernel: Dimension = 9
    activation: str = "gelu"
    dropout: PartialShare = 0.1
    attention_dropout: PartialShare = 0.1
    eps: NonNegative = 1e-12

    def _mixer(self) -> Mixer:
        if self.local != "none":
            return LocalAttention(
                self.width,
                self.n_heads,
                kernel=self.local_kernel,
                indexed_by=self.local,
                dropout=self.attention_dropout,
            )
        return CompositeAttention(
            self.width,
            self.n_heads,
            radius=self.radius,
            fixed=self.fixed,
            query_dynamic=self.query_dynamic,
            key_dynamic=self.key_dynamic,
            outside=self.outside,
            depthwise=self.depthwise,
            convolved=self.convolved,
            dropout=self.attention_dropout,
        )

    def build(self) -> Encoder:
        """Construct the modules."""
        return post_norm_encoder(self, self._mixer)
