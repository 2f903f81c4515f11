"""MobileBERT and its inverted-bottleneck teacher IB-BERT: bottleneck blocks, narrower or wider inside than outside."""

from dataclasses import dataclass
from typing import Literal

from lightbert.models.architecture import Architecture


@dataclass(frozen=True)
class MobileBert(Architecture):
    """``width`` is the width between blocks, ``block_width`` inside them, ``narrow`` that of the word embeddings."""

    narrow: int = 128
    width: int = 512
    depth: int = 24
    n_heads: int = 4
    inner: int = 512
    trigrams: bool = True
    block_width: int = 128
    feedforwards: int = 4
    norm: Literal["none", "layer"] = "none"
    activation: str = "relu"
    dropout: float = 0.0
