"""What of a teacher's layer a student's layer is to imitate, and by how much: the `transfer.*` keys of a recipe."""

from dataclasses import dataclass
from typing import Annotated, Literal

from lightbert.config import check
from lightbert.ranges import NonNegative


@dataclass(frozen=True)
class Transfer:
    """Weights and choices; the default is the release, with two mistakes of it put right.

    feature_maps: "plain" is Eq. 2, "decomposed" its release: normalised maps, means and variances; ``feature`` weighs
    the maps of either. ``attention`` = 0 switches attention transfer off.
    statistics: "layer" compares means and variances with those of the teacher's same layer. Deviation: the release
    compares each with those of all layers of the teacher and its embeddings ("released"), by a slip of its loop.
    padding: "excluded" takes averages over the text. Deviation: the release takes them over the padding too
    ("released").
    maps: "linear" learns a map per layer from the student's width to the teacher's, used in training only.
    """

    feature_maps: Annotated[
        Literal["decomposed", "plain"], "plain: the mean squared error of the feature maps as they are (Eq. 2)"
    ] = "decomposed"
    feature: Annotated[NonNegative, "weight of the feature maps; 0, with both below 0 too: no FMT"] = 100.0
    mean: Annotated[NonNegative, "weight of the squared difference of each token's mean"] = 5000.0
    variance: Annotated[NonNegative, "weight of the absolute difference of its variance"] = 5.0
    attention: Annotated[NonNegative, "weight of AT; 0: none"] = 1.0
    statistics: Annotated[
        Literal["layer", "released"], "released: each layer's means and variances against all layers of the teacher"
    ] = "layer"
    padding: Annotated[Literal["excluded", "released"], "released: averages over padding too"] = "excluded"
    maps: Annotated[Literal["none", "linear"], "linear: a learned map from the student's width to the teacher's"] = (
        "none"
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def compares_maps(self) -> bool:
        """Whether any term of the feature maps weighs anything."""
        return bool(self.feature or (self.feature_maps == "decomposed" and (self.mean or self.variance)))

    @property
    def compares_all_layers(self) -> bool:
        """Whether every layer needs all states of the teacher."""
        return self.statistics == "released" and self.feature_maps == "decomposed"
