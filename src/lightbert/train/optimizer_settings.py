"""Optimizer settings: the `optimizer.*` keys of a recipe."""

from dataclasses import dataclass
from typing import Annotated, Literal

from lightbert.config import NonNegative, PartialShare, Positive, check


@dataclass(frozen=True)
class OptimizerSettings:
    """The optimizer and its hyperparameters.

    ELECTRA's and ConvBERT's Adam has ``bias_correction=False``. Muon trains the matrices of blocks, AdamW the rest.
    """

    kind: Annotated[
        Literal["adamw", "lamb", "muon"], "muon trains the matrices of blocks, AdamW the other parameters"
    ] = "adamw"
    beta1: Annotated[PartialShare, "decay rate of the running mean of gradients"] = 0.9
    beta2: Annotated[PartialShare, "decay rate of the running mean of squared gradients"] = 0.999
    eps: Annotated[Positive, "added to the denominator for numerical stability"] = 1e-6
    weight_decay: Annotated[NonNegative, "weight decay, except of biases, norms and frozen parameters"] = 0.01
    bias_correction: Annotated[
        bool, "bias correction of AdamW; off in ELECTRA and ConvBERT, on in PyTorch and Chang et al."
    ] = False
    clip: Annotated[NonNegative, "maximum global gradient norm; 0: no clipping"] = 1.0

    def __post_init__(self) -> None:
        check(self)
