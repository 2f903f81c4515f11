"""What a run is made of, whatever it trains."""

from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from lightbert.data.batches.batch import Batch
from lightbert.train.base_recipe import BaseRecipe
from lightbert.train.schedule import Schedule


class Batches(Protocol):
    """What the loop asks of data: batches by step number, and whose examples they are."""

    def stream(self, start: int = 0) -> Generator[Batch]:
        """Yield the batches from step `start` on, without end."""

    def examples(self, step: int) -> NDArray[np.int64]:
        """Return the numbers of this process's examples at a step."""


@dataclass(frozen=True)
class Phase:
    """A stretch of a run with its own data, length, rates and trained parameters."""

    loader: Callable[[], Batches]
    steps: int
    """0 = as many as the time budget allows."""
    lr: float
    tokens: int
    """Tokens per step, padding included, all processes together."""
    schedule: Schedule = field(default_factory=Schedule)
    scales: Callable[[str], float] = lambda name: 1.0
    """What a parameter's rate is multiplied by, by its name; 0 = it rests, and so does its part of the optimizer."""
    begin: Callable[[], None] = lambda: None
    """Called before the first step of the phase, also of a run that goes on within it."""


@dataclass(frozen=True)
class Settings:
    """How a run goes: by its recipe, and by what follows from its data and its device."""

    recipe: BaseRecipe
    best: str = ""
    """The held-out number by which a run goes back to its best weights; "" = it ends with its last. Losses are low."""
    flops_per_token: float = 0.0
    """Of training: forward and backward of everything the objective runs."""
    peak_flops: float = 0.0
    """What the device could do per second; 0 = unknown."""
    sharding: Literal["replicate", "shard"] = "replicate"

    @property
    def out(self) -> Path:
        """The folder of the run."""
        return Path(self.recipe.out)


@dataclass
class Position:
    """How far a run has come: all that a checkpoint holds beside weights and optimizer."""

    step: int = 0
    """Steps done."""
    phase: int = 0
    phase_step: int = 0
    phase_seconds: float = 0.0
    phase_idle: float = 0.0
    """Of these, the seconds that say nothing of the pace: first steps, which may compile, evaluations, checkpoints."""
    bad_in_a_row: int = 0
    best: float = 0.0
    best_step: int = -1
    """When the chosen held-out number was best; -1 = there is none yet."""

    def begin_next_phase(self) -> None:
        """Leave a phase that is over."""
        self.phase, self.phase_step, self.phase_seconds, self.phase_idle = self.phase + 1, 0, 0.0, 0.0

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    step: int
    finished: bool
    tokens_per_second: float
    """After the first logged steps, which may contain compilation."""
    held_out: dict[str, float]
    best_step: int = -1
    """Of the weights that the run ended with, where those are not the last."""
