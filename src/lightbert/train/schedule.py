"""Learning rates as pure functions: of how far a run has come, and of a parameter's layer."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from lightbert.config import check
from lightbert.ranges import NonNegative, Share

_BLOCK = re.compile(r"(?:^|\.)blocks\.(\d+)\.")


@dataclass(frozen=True)
class Schedule:
    """``kind``: product (ELECTRA: warm-up times linear decay), linear (BERT: up, then down), wsd or constant.

    Deviation: linear falls from the peak, where the warm-up ends. BERT's release falls from step 0 on, so that its rate
    drops at the end of the warm-up.
    progressive is MobileBERT's within the phase of a layer: after the warm-up it sinks to nine tenths along a root.

    warmup: steps, or a share of the run when below 1. decay: the share at the end in which wsd falls. floor: what is
    left of the rate at the end.
    """

    kind: Annotated[
        Literal["product", "linear", "wsd", "constant", "progressive"],
        "product: warm-up times linear decay (ELECTRA); linear: up, then down (BERT); wsd: up, level, down; "
        "progressive: MobileBERT's within the stage of a layer",
    ] = "product"
    warmup: Annotated[NonNegative, "steps, or a share of the run if below 1"] = 0.1
    decay: Annotated[Share, "the share of the run at its end in which wsd falls"] = 0.2
    floor: Annotated[Share, "the share of the rate that is left at the end"] = 0.0

    def __post_init__(self) -> None:
        check(self)

    def factor(self, progress: float, steps: int) -> float:
        """What the peak rate is multiplied by at ``progress`` (0 to 1) of a phase that is ``steps`` long."""
        warmup = self.warmup if self.warmup < 1 else self.warmup / max(1, steps)
        rising = min(1.0, progress / warmup) if warmup else 1.0
        left = 1.0 - progress
        match self.kind:
            case "product":
                shape = rising * left
            case "linear":
                shape = rising if rising < 1 else left / max(1e-9, 1 - warmup)
            case "wsd":
                shape = min(rising, left / self.decay) if self.decay else rising
            case "constant":
                shape = rising
            case "progressive":
                shape = min(rising, 0.9 + 0.1 * left**0.5)
        return self.floor * rising + (1 - self.floor) * max(0.0, shape)


def progress_of(step: int, steps: int, elapsed: float, budget: float) -> float:
    """How far a phase has come at a step: by steps, by seconds of a time budget (0 = none), whichever is further.

    The first and the last step both have a rate above zero; the released code wastes its first step on a rate of 0.
    """
    by_steps = (step + 1) / (steps + 1) if steps else 0.0
    by_time = elapsed / budget if budget > 0 else 0.0
    return min(1.0, max(by_steps, by_time, 1e-6))


def layer_rate(name: str, depth: int, decay: float, depths: Literal["released", "corrected"] = "released") -> float:
    """What the rate of a parameter is multiplied by: 1 for heads, decayed once more with each layer below (ELECTRA).

    depth: how many blocks the model has.

    Deviation: "released" keeps an empty place above the top block, left by a pooler that was removed (electra#51):
    the top block has decay² instead of decay, and so on down to the embeddings. "corrected" closes the gap.
    """
    top = depth + (2 if depths == "released" else 1)
    block = _BLOCK.search(name)
    if block:
        return decay ** (top - int(block[1]) - 1)
    return decay**top if ".embeddings." in f".{name}" else 1.0
