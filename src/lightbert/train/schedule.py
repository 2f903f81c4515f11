"""Learning rate schedules and layer-wise decay as pure functions."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from lightbert.config import NonNegative, Share, check

# Between two measurements of the time, a rate that depends on it doesn't change.
_SHARE_BETWEEN_TIME_CHECKS = 0.01

_BLOCK = re.compile(r"(?:^|\.)blocks\.(\d+)\.")


@dataclass(frozen=True)
class Schedule:
    """A learning rate schedule with warm-up.

    kind: "product" is warm-up times linear decay (ELECTRA); "linear" is warm-up, then linear decay (BERT); "wsd" is
    warm-up, constant, then linear decay; "constant" is warm-up, then constant; "progressive" is MobileBERT's schedule
    within the stage of a layer: after the warm-up, a square-root decay to 0.9.
    warmup: steps, or a share of the run if below 1. decay: the share of the run, at its end, in which wsd decays.
    floor: the final learning rate as a share of the peak.

    Deviation: linear decays from the peak at the end of the warm-up. BERT's released code decays from step 0, so that
    its rate drops when the warm-up ends.
    """

    kind: Annotated[
        Literal["product", "linear", "wsd", "constant", "progressive"],
        "product: warm-up times linear decay (ELECTRA); linear: warm-up, then linear decay (BERT); wsd: warm-up, "
        "constant, linear decay; progressive: MobileBERT's schedule for the stage of a layer",
    ] = "product"
    warmup: Annotated[NonNegative, "steps, or a share of the run if below 1"] = 0.1
    decay: Annotated[Share, "wsd: the share of the run, at its end, in which the rate decays"] = 0.2
    floor: Annotated[Share, "final learning rate as a share of the peak"] = 0.0

    def __post_init__(self) -> None:
        check(self)

    def factor(self, progress: float, steps: int) -> float:
        """Return the multiplier of the peak rate at ``progress`` (0 to 1) of a phase of ``steps`` steps."""
        warmup = self.warmup if self.warmup < 1 else self.warmup / max(1, steps)
        warm = min(1.0, progress / warmup) if warmup else 1.0
        left = 1.0 - progress
        match self.kind:
            case "product":
                shape = warm * left
            case "linear":
                shape = warm if warm < 1 else left / max(1e-9, 1 - warmup)
            case "wsd":
                shape = min(warm, left / self.decay) if self.decay else warm
            case "constant":
                shape = warm
            case "progressive":
                shape = min(warm, 0.9 + 0.1 * left**0.5)
        return self.floor * warm + (1 - self.floor) * max(0.0, shape)


def progress_of(step: int, steps: int, elapsed: float, budget: float) -> float:
    """Return the progress (0 to 1) of a phase: by steps or by a time budget in seconds (0 = none), whichever is larger.

    The first and the last step both have a rate above 0; in the released code the rate of the first step is 0.
    """
    by_steps = (step + 1) / (steps + 1) if steps else 0.0
    by_time = elapsed / budget if budget > 0 else 0.0
    return min(1.0, max(by_steps, by_time, 1e-6))


def steps_left(done: int, steps: int, later: int, times_elapsed: float) -> int:
    """Estimate the steps until the end of a run with a time budget, from the speed of the phase so far.

    steps: of the phase, 0 = unlimited. later: steps of the phases after it. times_elapsed: the budget of the phase as a
    multiple of the time that its first ``done`` steps took.
    """
    possible = done * times_elapsed
    ends_after = min(steps, possible) if steps else possible
    return max(0, round(ends_after * (1 + (later / steps if steps else 0.0))) - done)


def time_between_checks(elapsed: float, budget: float) -> float:
    """Return after how many seconds to measure the time again: a hundredth of the budget, or what is left of it."""
    return min(_SHARE_BETWEEN_TIME_CHECKS * budget, budget - elapsed)


def layer_rate(name: str, depth: int, decay: float, depths: Literal["released", "corrected"] = "released") -> float:
    """Return a parameter's learning rate multiplier: 1 for heads, decayed once per layer below them (ELECTRA).

    depth: the number of blocks of the model.

    Deviation: "released" counts an extra layer above the top block, where the code once had a pooler (electra#51): the
    top block has decay² instead of decay, and so on down to the embeddings. "corrected" doesn't count it.
    """
    top = depth + (2 if depths == "released" else 1)
    block = _BLOCK.search(name)
    if block:
        return decay ** (top - int(block[1]) - 1)
    return decay**top if ".embeddings." in f".{name}" else 1.0
