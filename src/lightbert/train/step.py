"""A run: its phases, settings, position and outcome; and one optimisation step, without host synchronisation."""

import math
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lightbert.data.batch import Batch
from lightbert.errors import InputError
from lightbert.nn.feedforward import GroupedLinear
from lightbert.nn.fused import Padding, kernel_paddings
from lightbert.objectives.objective import Losses, Objective
from lightbert.train.distributed import World, is_sharded, local_part
from lightbert.train.optim import Optimizers
from lightbert.train.settings import BaseRecipe, Schedule

_CAST_BY_AUTOCAST = {nn.Linear: ("weight", "bias"), GroupedLinear: ("weight", "bias")}
"""The parameters that autocast casts whenever a layer is called, by the exact class of the layer."""


class _CastWeight(NamedTuple):
    module: nn.Module
    name: str
    parameter: nn.Parameter
    padding: Padding
    """Rows of zeros in the copy."""


class HalfWeights:
    """Give the linear layers of a module bf16 copies of their weights, cast together, without changing the result.

    Under autocast each layer would cast its own in separate kernels. A layer computes what it computes under autocast;
    the gradients reach the fp32 parameters in fp32. On a GPU, the kernel layers of dynamic convolutions get padded
    copies, which they would make by kernels of their own.
    gradient_place: returns memory for the fp32 gradient of a parameter, or None for memory of its own.
    """

    def __init__(
        self, module: nn.Module, gradient_place: Callable[[nn.Parameter], Tensor | None] = lambda parameter: None
    ) -> None:
        self.gradient_place = gradient_place
        paddings = kernel_paddings(module)
        self.weights = [
            _CastWeight(layer, name, parameter, paddings.get(layer, Padding()))
            for layer in module.modules()
            for name in _CAST_BY_AUTOCAST.get(type(layer), ())
            if (parameter := layer._parameters[name]) is not None
        ]
        self._padded: dict[int, Tensor] = {}
        """Copies with rows of zeros, which are written once."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the parameters by copies of their present values, for a forward and a backward pass."""
        parameters = [weight.parameter for weight in self.weights]
        copies = _Cast.apply(self, *parameters) if parameters else ()  # type: ignore[no-untyped-call]
        try:
            for weight, copy in zip(self.weights, copies, strict=True):
                # Assigning the attribute is allowed for an nn.Parameter only.
                weight.module._parameters[weight.name] = copy
            yield
        finally:
            for weight in self.weights:
                weight.module._parameters[weight.name] = weight.parameter

    def memory(self, number: int) -> Tensor:
        """Return memory for the copy of a weight; that of padded copies is used again, because its zeros stay."""
        _, _, parameter, padding = self.weights[number]
        if not padding.filler:
            return torch.empty_like(parameter, dtype=torch.bfloat16)
        if number not in self._padded:
            rows = parameter.shape[0] + padding.blocks * padding.filler
            self._padded[number] = parameter.new_zeros(rows, *parameter.shape[1:], dtype=torch.bfloat16)
        return self._padded[number].detach()

    def places(self, numbers: list[int]) -> list[Tensor]:
        """Return memory for the gradients of some weights; a parameter of several layers gets several gradients."""
        parameters = [self.weights[number].parameter for number in numbers]
        first = {parameter: number for number, parameter in reversed([*zip(numbers, parameters, strict=True)])}
        known = [
            self.gradient_place(parameter) if first[parameter] == number else None
            for number, parameter in zip(numbers, parameters, strict=True)
        ]
        return [
            torch.empty_like(parameter, dtype=torch.float32) if place is None else place
            for parameter, place in zip(parameters, known, strict=True)
        ]


class _Cast(torch.autograd.Function):
    """Cast many tensors to bf16 and their gradients back, with a few kernels for all of them."""

    @staticmethod
    def forward(ctx: Any, weights: HalfWeights, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.weights = weights
        copies = [weights.memory(number) for number in range(len(parameters))]
        paddings = [weight.padding for weight in weights.weights]
        _copy_all(
            [block for padding, copy in zip(paddings, copies, strict=True) for block in padding.filled(copy)],
            [block for padding, p in zip(paddings, parameters, strict=True) for block in padding.split(p)],
        )
        frozen = [copy for copy, trained in zip(copies, ctx.needs_input_grad[1:], strict=True) if not trained]
        ctx.mark_non_differentiable(*frozen)
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        present = {number: gradient.contiguous() for number, gradient in enumerate(gradients) if gradient is not None}
        exact = dict(zip(present, ctx.weights.places([*present]), strict=True))
        paddings = {number: ctx.weights.weights[number].padding for number in present}
        _copy_all(
            [block for number, place in exact.items() for block in paddings[number].split(place)],
            [block for number, gradient in present.items() for block in paddings[number].filled(gradient)],
        )
        return None, *(exact.get(number) for number in range(len(gradients)))


def _copy_all(targets: list[Tensor], values: list[Tensor]) -> None:
    """Copy contiguous tensors: equal strides are what the multi-tensor kernel requires."""
    if targets:
        torch._foreach_copy_(targets, values)


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

    steps_per_epoch: int

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
    """Tokens per step, padding included, over all processes: what a step needs memory for."""
    schedule: Schedule = field(default_factory=Schedule)
    scales: Callable[[str], float] = lambda name: 1.0
    """Learning rate multiplier by parameter name; 0 = frozen, optimizer state included."""
    begin: Callable[[], None] = lambda: None
    """Called before the first step of the phase, and when a run resumes within it."""
    content: Callable[[], str] = lambda: ""
    """A hash of the data, which must not change while the phase is interrupted."""
    measure: Callable[["Step"], dict[str, Any]] | None = None
    """Returns the held-out metrics; None = as for the whole run."""


@dataclass(frozen=True)
class Settings:
    """The recipe of a run, and the values derived from its data and device."""

    recipe: BaseRecipe
    best: str = ""
    """The held-out metric that selects the best weights at the end; "" = keep the last weights."""
    peak: float = 0.0
    """The tokens per second of a device at its peak FLOP/s; 0 = unknown."""
    sharding: Literal["replicate", "shard"] = "replicate"
    evaluates_start: bool = False
    """Whether the weights are evaluated before the first step."""

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
    """Average throughput without padding and without the first logged steps, which may include compilation."""
    held_out: dict[str, float]
    best_step: int = -1
    """The step of the weights that were kept; -1 = the last step."""
    start_seconds: float = 0.0
    """Seconds from the loaded model to the end of the first step, compilation included; 0 if there was none."""
    verdict: str = ""
    """What pre-training changed, and whether the model beats a trivial baseline on held-out text, in words."""
    before: dict[str, float] = field(default_factory=dict)
    """The held-out metrics before the first step, of a run that continues a trained model."""
    passes: float = 0.0
    """How often the text was read; 0 = unknown, because phases have different data."""


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
