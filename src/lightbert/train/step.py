"""A run: its phases, settings, position and outcome, and one optimisation step, without host synchronisation."""

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lightbert.data.batch import Batch
from lightbert.errors import InputError
from lightbert.objectives.objective import Losses, Objective
from lightbert.train.distributed import World, is_sharded, local_part
from lightbert.train.half_weights import HalfWeights
from lightbert.train.optim import Optimizers
from lightbert.train.schedule import Schedule
from lightbert.train.settings import BaseRecipe


class Step:
    """Mask, forward, backward, update; static shapes and no host synchronisation, as CUDA graphs require."""

    def __init__(self, objective: Objective, optimizers: Optimizers, world: World, *, accumulate: int = 1) -> None:
        self.objective, self.optimizers, self.world = objective, optimizers, world
        self.accumulate = accumulate
        self.call: Any = objective
        # With several processes the gradients must be ready one by one, while others are being sent.
        alone = self.half_precision and world.size == 1
        self.half_weights = HalfWeights(objective, optimizers.gradient_place) if alone else None
        if world.size > 1 and not is_sharded(objective):
            self.call = DistributedDataParallel(objective, gradient_as_bucket_view=True)

    @property
    def half_precision(self) -> bool:
        """Whether matmuls run in bf16: on a GPU."""
        return self.world.device.type == "cuda"

    def autocast(self) -> Any:
        """Return the bf16 autocast context on a GPU; on a CPU everything stays in fp32."""
        return torch.autocast(self.world.device.type, dtype=torch.bfloat16) if self.half_precision else nullcontext()

    def _cast_weights(self) -> AbstractContextManager[None]:
        """Give the layers bf16 weights for one forward and backward pass."""
        return nullcontext() if self.half_weights is None else self.half_weights.installed()

    def _gradient_sync(self, *, last: bool) -> AbstractContextManager[None]:
        """Synchronise gradients once per step: in the backward pass of the last part."""
        if is_sharded(self.call):
            self.call.set_requires_gradient_sync(last)
        elif self.world.size > 1 and not last:
            no_sync: AbstractContextManager[None] = self.call.no_sync()
            return no_sync
        return nullcontext()

    def __call__(self, batch: Batch) -> Tensor:
        """Apply one step; return the tallies of this process, the gradient norm, and whether the step was applied."""
        with torch.no_grad():
            parts = [self.objective.prepare(part) for part in batch.split(self.accumulate)]
            counts = self.world.sum(torch.stack([self.objective.counts(part) for part in parts]).sum(0))
        tally: Tensor | float = 0.0
        for index, part in enumerate(parts):
            with self._gradient_sync(last=index == len(parts) - 1), self._cast_weights():
                with self.autocast():
                    losses: Losses = self.call(part, counts)
                # DDP and FSDP average gradients over processes, but the loss is already divided by the global counts.
                (losses.total * self.world.size).backward()
            tally = tally + losses.tally
        norm, finite = self.optimizers.step()
        self.optimizers.zero_grad()
        return torch.cat([torch.as_tensor(tally), torch.stack([norm.double(), finite.double()])])


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


MAX_SKIPPED_IN_A_ROW = 5


def check_weights(model: nn.Module, at: Position, lr: float, world: World) -> None:
    """Raise an error instead of saving weights that are not finite; every process must call this."""
    finite = torch.stack([local_part(p.detach()).isfinite().all() for p in model.parameters()]).all()
    if world.any(not finite.item()):
        raise diverged(f"the weights are not finite after step {at.step}: training has diverged", lr)


def check_outcome(held_out: Mapping[str, float], at: Position, lr: float) -> None:
    """Raise an error if a run ends without having learned anything."""
    bad = next((name for name, value in held_out.items() if name.endswith("loss") and not math.isfinite(value)), "")
    if bad:
        raise diverged(f"{bad} on held-out data is not finite: training has diverged", lr)
    # A single skipped step at the end is no reason to discard the run, unless it was the only one.
    if at.bad_in_a_row > 1 or 0 < at.bad_in_a_row == at.step:
        raise diverged(f"the last {at.bad_in_a_row} steps were skipped: the gradients were not finite", lr)


def diverged(problem: str, lr: float) -> InputError:
    """Return an error with the remedy."""
    return InputError(f"{problem}; try a learning rate below lr={lr} in another folder out=")
