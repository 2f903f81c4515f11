"""Which parts of a teacher's layers are transferred, and their loss weights: the `transfer.*` keys of a recipe."""

from dataclasses import dataclass
from typing import Annotated, Literal

from lightbert.config import NonNegative, check


@dataclass(frozen=True)
class Transfer:
    """Loss weights and options; the defaults are those of the released code, with two mistakes corrected.

    feature_maps: "plain" is Eq. 2; "decomposed" is the released code's: normalised maps, means and variances.
    ``feature`` is the weight of the maps in both. ``attention`` = 0 disables attention transfer.
    statistics: "layer" compares means and variances with the same layer of the teacher. Deviation: the released code
    compares each layer with all layers and the embeddings of the teacher ("released"), by a mistake in a loop.
    padding: "excluded" averages over real tokens. Deviation: the released code averages over padding too ("released").
    maps: "linear" learns one map per layer from the student's width to the teacher's, used in training only.
    """

    feature_maps: Annotated[
        Literal["decomposed", "plain"], "plain: the mean squared error of the feature maps (Eq. 2)"
    ] = "decomposed"
    feature: Annotated[NonNegative, "weight of the feature maps; 0 here, in mean and in variance: no FMT"] = 100.0
    mean: Annotated[NonNegative, "weight of the squared difference of the tokens' means"] = 5000.0
    variance: Annotated[NonNegative, "weight of the absolute difference of the tokens' variances"] = 5.0
    attention: Annotated[NonNegative, "weight of AT; 0: no AT"] = 1.0
    statistics: Annotated[
        Literal["layer", "released"],
        "released: compare each layer's means and variances with all layers of the teacher",
    ] = "layer"
    padding: Annotated[Literal["excluded", "released"], "released: average over padding too"] = "excluded"
    maps: Annotated[Literal["none", "linear"], "linear: a learned map from the student's width to the teacher's"] = (
        "none"
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def compares_maps(self) -> bool:
        """Whether any term of the feature map transfer has a weight > 0."""
        return bool(self.feature or (self.feature_maps == "decomposed" and (self.mean or self.variance)))

    @property
    def compares_all_layers(self) -> bool:
        """Whether every layer is compared with all layers of the teacher."""
        return self.statistics == "released" and self.feature_maps == "decomposed"
