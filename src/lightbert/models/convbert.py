"""ConvBERT: span-based dynamic convolutions replace half of the attention heads."""

from dataclasses import dataclass

from lightbert.config import Dimension
from lightbert.models.architecture import Architecture, Convolution


@dataclass(frozen=True)
class ConvBert(Architecture):
    """ConvBERT and its ablations; without a convolution it has bottleneck attention."""

    head_ratio: Dimension = 2
    convolution: Convolution = "span"
