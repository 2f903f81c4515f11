"""Strategies of knowledge transfer as lists of stages (MobileBERT §3.6, Fig. 2)."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lightbert.errors import InputError

Strategy = Literal["bare", "pd", "akt", "jkt", "pkt"]

_IN_A_BLOCK = re.compile(r"student\.blocks\.(\d+)\.")
_IN_A_MAP = re.compile(r"maps\.(\d+)\.")


@dataclass(frozen=True)
class Scales:
    """What each parameter's rate is multiplied by in a stage, by its name in the objective; 0 = it rests.

    The blocks and linear maps of ``layers`` have ``rate``, the blocks below them ``lower``, the blocks above rest, and
    so do the embeddings and heads, which were copied. ``free`` names parameters of the student's embeddings that could
    not be copied, or are not to stay as they were: they go with the first layer. ``predict`` trains all of the student.
    """

    layers: range
    rate: float = 1.0
    lower: float = 0.0
    free: frozenset[str] = frozenset()
    predict: bool = False

    def __call__(self, name: str) -> float:
        """The multiple for a parameter such as ``student.blocks.3.mixer.query.weight``, which is in layer 4."""
        if found := _IN_A_MAP.match(name):
            return self.rate if int(found[1]) + 1 in self.layers else 0.0
        if self.predict:
            return self.rate
        found = _IN_A_BLOCK.match(name)
        if found is None and name.removeprefix("student.") not in self.free:
            return 0.0
        layer = 1 if found is None else int(found[1]) + 1
        if layer in self.layers:
            return self.rate
        return self.lower if layer < self.layers.start else 0.0


@dataclass(frozen=True)
class Stage:
    """A stretch of training with one loss and one choice of what is trained.

    Layers are numbered from 1, as in the paper; layer ℓ ends with ``blocks.{ℓ-1}``, and 0 are the embeddings.
    """

    name: str
    steps: int
    layers: range
    """Whose feature maps and attention are transferred; none = an empty range."""
    predict: bool
    """Whether the masked tokens, and whether one text follows the other, are predicted too."""
    scales: Callable[[str], float]
    """Multiplies the rate of a parameter, given its name in the objective; 0 = it rests."""
    schedule: Literal["recipe", "progressive"] = "recipe"
    """How the rate goes within the stage: as the recipe says, or as the release lets it within a layer's phase."""


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
    """The stages of a strategy; those without a second stage take all steps in one.

    "bare" predicts without a teacher and "pd" with one. ``rate`` is what progressive transfer multiplies the current
    layer's rate by, ``soft`` what is left of that for the layers below it: 0 freezes them. ``free``: see Scales.
    """
    all_steps = transfer_steps + predict_steps
    match strategy:
        case "bare" | "pd":
            return prediction_stages(all_steps)
        case "akt":
            return auxiliary_stages(depth, all_steps)
        case "jkt":
            first = joint_stages(depth, transfer_steps, free=free)
        case "pkt":
            first = progressive_stages(depth, transfer_steps, rate=rate, soft=soft, free=free)
    return first + prediction_stages(predict_steps)


def prediction_stages(steps: int) -> list[Stage]:
    """Pre-training distillation, or plain pre-training when there is no teacher; no steps are no stage."""
    none = range(0)
    return [Stage("predict", steps, none, predict=True, scales=Scales(none, predict=True))] if steps else []


def auxiliary_stages(depth: int, steps: int) -> list[Stage]:
    """AKT: the transfer from all layers and the prediction in one loss."""
    layers = range(1, depth + 1)
    return [Stage("together", steps, layers, predict=True, scales=Scales(layers, predict=True))]


def joint_stages(depth: int, steps: int, *, free: frozenset[str] = frozenset()) -> list[Stage]:
    """The first stage of JKT: the transfer from all layers at once."""
    layers = range(1, depth + 1)
    return [Stage("transfer", steps, layers, False, Scales(layers, free=free), "progressive")]


def progressive_stages(
    depth: int, steps: int, *, rate: float = 3.0, soft: float = 0.1, free: frozenset[str] = frozenset()
) -> list[Stage]:
    """The first stages of PKT: one layer after the other, the steps shared out as evenly as they can be."""
    if steps < depth:
        raise InputError(f"transfer_steps = {steps} cannot be shared out between {depth} layers: give at least {depth}")
    ends = [steps * layer // depth for layer in range(depth + 1)]
    return [
        Stage(
            f"layer-{layer}",
            ends[layer] - ends[layer - 1],
            range(layer, layer + 1),
            predict=False,
            scales=Scales(range(layer, layer + 1), rate, rate * soft, free),
            schedule="progressive",
        )
        for layer in range(1, depth + 1)
    ]
