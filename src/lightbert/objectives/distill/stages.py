"""Distillation strategies as lists of stages (MobileBERT §3.6, Fig. 2), and what is transferred: `transfer.*`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from lightbert.config import Checked, NonNegative
from lightbert.errors import InputError

Strategy = Literal["bare", "pd", "akt", "jkt", "pkt"]

_IN_A_BLOCK = re.compile(r"student\.blocks\.(\d+)\.")
_IN_A_MAP = re.compile(r"maps\.(\d+)\.")


@dataclass(frozen=True)
class Scales:
    """Learning rate multipliers of a stage, by a parameter's name in the objective; 0 = frozen.

    The blocks and linear maps of ``layers`` have ``rate``, the blocks below them ``lower``. The blocks above, and the
    embeddings and heads, which were copied, are frozen. ``free`` names embedding parameters that are trained with the
    first layer, because they weren't copied. ``predict`` trains the whole student.
    """

    layers: range
    rate: float = 1.0
    lower: float = 0.0
    free: frozenset[str] = frozenset()
    predict: bool = False

    def __call__(self, name: str) -> float:
        """Return the multiplier of a parameter such as ``student.blocks.3.mixer.query.weight``, which is in layer 4."""
        if match := _IN_A_MAP.match(name):
            return self.rate if int(match[1]) + 1 in self.layers else 0.0
        if self.predict:
            return self.rate
        match = _IN_A_BLOCK.match(name)
        if match is None and name.removeprefix("student.") not in self.free:
            return 0.0
        layer = 1 if match is None else int(match[1]) + 1
        if layer in self.layers:
            return self.rate
        return self.lower if layer < self.layers.start else 0.0


@dataclass(frozen=True)
class Stage:
    """A part of training with one loss and one set of trained parameters.

    Layers are numbered from 1, as in the paper: layer ℓ is ``blocks.{ℓ-1}``, and layer 0 is the embeddings.
    """

    name: str
    steps: int
    layers: range
    """The layers whose feature maps and attention are transferred; may be empty."""
    predict: bool
    """Whether masked tokens and next sentences are predicted too."""
    scales: Callable[[str], float]
    """Learning rate multiplier by a parameter's name in the objective; 0 = frozen."""
    schedule: Literal["recipe", "progressive"] = "recipe"
    """The schedule within the stage: the recipe's, or the released code's for the stage of a layer."""


def stages(
    strategy: Strategy,
    *,
    depth: int,
    transfer_steps: int,
    predict_steps: int,
    rate: float = 3.0,
    soft: float = 0.1,
    free: frozenset[str] = frozenset(),
) -> list[Stage]:
    """Return the stages of a strategy; a strategy with one stage uses all steps in it.

    "bare" predicts without a teacher and "pd" with one. rate: the learning rate multiplier of the current layer in
    progressive transfer. soft: the multiplier of the layers below, relative to ``rate``; 0 freezes them. free: see
    `Scales`.
    """
    none, every = range(0), range(1, depth + 1)
    first: list[Stage] = []
    match strategy:
        case "bare" | "pd":
            predict_steps += transfer_steps
        case "akt":
            steps = transfer_steps + predict_steps
            return [Stage("together", steps, every, predict=True, scales=Scales(every, predict=True))]
        case "jkt":
            first = [Stage("transfer", transfer_steps, every, False, Scales(every, free=free), "progressive")]
        case "pkt":
            if transfer_steps < depth:
                raise InputError(f"transfer_steps must be >= {depth}, one step per layer, got {transfer_steps}")
            # One layer at a time, with the steps split as evenly as possible.
            ends = [transfer_steps * layer // depth for layer in range(depth + 1)]
            for layer in every:
                scales = Scales(range(layer, layer + 1), rate, rate * soft, free)
                steps = ends[layer] - ends[layer - 1]
                first.append(Stage(f"layer-{layer}", steps, scales.layers, False, scales, "progressive"))
    last = Stage("predict", predict_steps, none, predict=True, scales=Scales(none, predict=True))
    return [*first, last] if predict_steps else first


@dataclass(frozen=True)
class Transfer(Checked):
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

    @property
    def compares_maps(self) -> bool:
        """Whether any term of the feature map transfer has a weight > 0."""
        return bool(self.feature or (self.feature_maps == "decomposed" and (self.mean or self.variance)))

    @property
    def compares_all_layers(self) -> bool:
        """Whether every layer is compared with all layers of the teacher."""
        return self.statistics == "released" and self.feature_maps == "decomposed"
