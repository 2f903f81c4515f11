"""The models of the composite paper: self-attention with convolutions (Chang et al. 2021)."""

from dataclasses import dataclass

from lightbert.models.architecture import Architecture


@dataclass(frozen=True)
class Composite(Architecture):
    """Each row of the paper's tables is a choice of terms. Without positions, the convolutions encode the order."""

    vocab: int = 30004
    positions: int = 0
    narrow: int = 128
    width: int = 256
    n_heads: int = 4
    inner: int = 1024
    fixed: bool = True
    query_dynamic: bool = True
