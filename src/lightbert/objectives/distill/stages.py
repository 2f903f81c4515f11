"""Distillation strategies as lists of stages (MobileBERT §3.6, Fig. 2)."""

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
    """Pre-training distillation, or plain pre-training without a teacher; an empty list if there are no steps."""
    none = range(0)
    return [Stage("predict", steps, none, predict=True, scales=Scales(none, predict=True))] if steps else []


def auxiliary_stages(depth: int, steps: int) -> list[Stage]:
    """AKT: transfer of all layers and prediction in one loss."""
    layers = range(1, depth + 1)
    return [Stage("together", steps, layers, predict=True, scales=Scales(layers, predict=True))]


def joint_stages(depth: int, steps: int, *, free: frozenset[str] = frozenset()) -> list[Stage]:
    """The first stage of JKT: transfer of all layers at once."""
    layers = range(1, depth + 1)
    return [Stage("transfer", steps, layers, False, Scales(layers, free=free), "progressive")]


def progressive_stages(
    depth: int, steps: int, *, rate: float = 3.0, soft: float = 0.1, free: frozenset[str] = frozenset()
) -> list[Stage]:
    """The first stages of PKT: one layer at a time, with the steps split as evenly as possible."""
    if steps < depth:
        raise InputError(f"transfer_steps must be >= {depth}, one step per layer, got {steps}")
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
