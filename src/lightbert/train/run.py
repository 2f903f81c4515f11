"""The parts of a run: phases, settings, position and outcome."""

from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from lightbert.data.batch import Batch
from lightbert.train.base_recipe import BaseRecipe
from lightbert.train.schedule import Schedule

if TYPE_CHECKING:
    from lightbert.train.step import Step


class Batches(Protocol):
    """The interface of a data loader: batches by step number, and the examples in them."""

    def stream(self, start: int = 0) -> Generator[Batch]:
        """Yield the batches from step ``start`` on, indefinitely."""

    def examples(self, step: int) -> NDArray[np.int64]:
        """Return the indices of this process's examples at a step."""


@dataclass(frozen=True)
class Phase:
    """A part of a run with its own data, sequence length, learning rate and trained parameters."""

    loader: Callable[[], Batches]
    steps: int
    """0 = until the time budget is used up."""
    lr: float
    tokens: int
    """Tokens per step, padding included, over all processes."""
    schedule: Schedule = field(default_factory=Schedule)
    scales: Callable[[str], float] = lambda name: 1.0
    """Learning rate multiplier by parameter name; 0 = frozen, optimizer state included."""
    begin: Callable[[], None] = lambda: None
    """Called before the first step of the phase, and when a run resumes within it."""
    content: Callable[[], str] = lambda: ""
    """A hash of the data, which must not change while the phase is interrupted."""
    measure: Callable[["Step"], dict[str, float]] | None = None
    """Returns the held-out metrics; None = as for the whole run."""


@dataclass(frozen=True)
class Settings:
    """The recipe of a run, and the values derived from its data and device."""

    recipe: BaseRecipe
    best: str = ""
    """The held-out metric that selects the best weights at the end; "" = keep the last weights."""
    flops_per_token: float = 0.0
    """Training FLOPs per token: forward and backward of every model of the objective."""
    peak_flops: float = 0.0
    """Peak FLOP/s of the device; 0 = unknown."""
    sharding: Literal["replicate", "shard"] = "replicate"

    @property
    def out(self) -> Path:
        """The folder of the run."""
        return Path(self.recipe.out)


@dataclass
class Position:
    """The progress of a run: everything in a checkpoint except weights and optimizer state."""

    step: int = 0
    """Completed steps."""
    phase: int = 0
    phase_step: int = 0
    phase_seconds: float = 0.0
    phase_idle: float = 0.0
    """Seconds of the phase that don't count for the speed: first steps, evaluations, checkpoints."""
    data: str = ""
    """The hash of the data of the current phase; "" before its first step."""
    bad_in_a_row: int = 0
    best: float = 0.0
    best_step: int = -1
    """The step of the best held-out metric; -1 = none yet."""

    def begin_next_phase(self) -> None:
        """Advance to the next phase."""
        self.phase, self.phase_step, self.phase_seconds, self.phase_idle, self.data = self.phase + 1, 0, 0.0, 0.0, ""

    def is_at(self, facts: dict[str, Any]) -> bool:
        """Return whether saved values describe the same position; time that passed since does not matter."""
        clock = ("phase_seconds", "phase_idle")
        return all(facts.get(name) == value for name, value in self.facts().items() if name not in clock)

    def facts(self) -> dict[str, Any]:
        """Return the position as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    step: int
    finished: bool
    tokens_per_second: float
    """Average throughput, without the first logged steps, which may include compilation."""
    held_out: dict[str, float]
    best_step: int = -1
    """The step of the weights that were kept; -1 = the last step."""
    start_seconds: float = 0.0
    """Seconds from the loaded model to the end of the first step, compilation included; 0 if there was none."""
    verdict: str = ""
    """Whether a pre-trained model beats a trivial baseline on held-out text, in words."""
