"""Which optimizer, with which numbers: the `optimizer.*` keys of a recipe."""

from dataclasses import dataclass
from typing import Annotated, Literal

from lightbert.config import check
from lightbert.ranges import NonNegative, PartialShare, Positive


@dataclass(frozen=True)
class OptimizerSettings:
    """``bias_correction`` off is ELECTRA's and ConvBERT's Adam; muon takes the blocks' matrices, AdamW the rest."""

    kind: Annotated[Literal["adamw", "lamb", "muon"], "muon is for the matrices of blocks, with AdamW for the rest"] = (
        "adamw"
    )
    beta1: Annotated[PartialShare, "decay of the running mean of gradients"] = 0.9
    beta2: Annotated[PartialShare, "decay of the running mean of squared gradients"] = 0.999
    eps: Annotated[Positive, "added to the root of the squared gradients"] = 1e-6
    weight_decay: Annotated[NonNegative, "of everything but biases and norms; frozen parameters don't decay"] = 0.01
    bias_correction: Annotated[bool, "of AdamW; ELECTRA and ConvBERT have none, PyTorch and Chang et al. have it"] = (
        False
    )
    clip: Annotated[NonNegative, "the largest norm of all gradients together; 0: gradients are not clipped"] = 1.0

    def __post_init__(self) -> None:
        check(self)
