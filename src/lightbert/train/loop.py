"""The training loop for every objective: steps, logs, evaluations and checkpoints."""

import math
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from statistics import fmean
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from lightbert.config import from_mapping
from lightbert.data.batch import Batch
from lightbert.errors import InputError
from lightbert.files import sweep
from lightbert.objectives.objective import Objective
from lightbert.ops.randomness import Stream, bits
from lightbert.progress import Bar, progress
from lightbert.train import checkpoint
from lightbert.train.checkpoint import BestWeights, Checkpoint
from lightbert.train.cuda_graph import CudaGraphStep, uses_cuda_graph
from lightbert.train.distributed import World, gather, shard
from lightbert.train.log import FirstStep, Meter, MetricsFile, headline, numbers
from lightbert.train.optim import Optimizers
from lightbert.train.signals import Interruption
from lightbert.train.step import (
    MAX_SKIPPED_IN_A_ROW,
    Batches,
    Outcome,
    Phase,
    Position,
    Settings,
    Step,
    check_outcome,
    check_weights,
    diverged,
)

# Processes agree on the time, which takes communication.
_STEPS_BETWEEN_TIME_CHECKS = 10
_SHARE_BETWEEN_TIME_CHECKS = 0.01


class Loop:
    """Train an objective through its phases, resuming from the newest checkpoint.

    All random numbers of a step are a function of (seed, step, rank), so that no generator state is saved.
    measure: returns the held-out metrics; it must be deterministic for given weights.
    report: called on the main process after each evaluation with the step, the mean training loss since the previous
    evaluation, and the metrics.
    """

    def __init__(
        self,
        objective: Objective,
        phases: list[Phase],
        settings: Settings,
        world: World,
        measure: Callable[[Step], dict[str, Any]] | None,
        report: Callable[[int, float, dict[str, float]], None] = lambda step, loss, metrics: None,
    ) -> None:
        self.objective, self.phases, self.settings = objective.to(world.device), phases, settings
        self.world, self.measure, self.report = world, measure, report
        if settings.sharding == "shard" and world.size > 1:
            shard(objective, world)
        self.optimizers = Optimizers(objective, settings.recipe.optimizer)
        self.step = Step(objective, self.optimizers, world)
        self.folder = settings.out / "checkpoints"
        self.at = Position()
        self.best = BestWeights(settings.best, objective, world)
        self._saved: dict[str, Any] | None = None
        self.meter = Meter()
        self.first_step = FirstStep(world, compiles=settings.recipe.compile != "none")
        self._counted_at, self._lr = monotonic(), phases[-1].lr
        self._resume()
        self.metrics: MetricsFile | None = None
        if world.is_main:
            # Without a checkpoint, an evaluation before the first step may be that of another recipe.
            step = -1 if self._saved is None else self.at.step
            board = settings.out / "tensorboard" if settings.recipe.tensorboard else None
            self.metrics = MetricsFile(settings.out / "metrics.jsonl", step, board)
        self.held_out_metrics: dict[str, float] = {}
        self._pending: list[tuple[int, float, Tensor]] = []
        self._tokens = 0
        """Real tokens of this process in the pending steps."""
        self._losses: list[float] = []
        self._bar = Bar("training", None, "steps", self.at.step)

    def run(self, interrupted: Interruption) -> Outcome:
        """Train from the current position to the end, or until interrupted."""
        self.objective.train()
        total, done = sum(phase.steps for phase in self.phases), self.at.step
        stopped = False
        with interrupted.deferred(), nullcontext() if self.metrics is None else closing(self.metrics):
            # Only the main process draws the bar.
            drawn = progress("training", total=total or None, unit="steps", done=done) if self.world.is_main else None
            with drawn or nullcontext(Bar("training", total, "steps", done)) as self._bar:
                while self.at.phase < len(self.phases) and not stopped:
                    stopped = self._train_phase(self.phases[self.at.phase], interrupted, self._bar)
                if not stopped:
                    self._bar.total = self._bar.done
                    self._evaluate()
                    check_outcome(self.held_out_metrics, self.at, self._lr)
            self._save()
        if not stopped and self.best.restore() and self.metrics is not None:
            self.held_out_metrics = numbers(self.metrics.held_out[self.at.best_step])
        speed, start = self.meter.average, self.first_step.start_seconds
        return Outcome(self.at.step, not stopped, speed, self.held_out_metrics, self.at.best_step, start_seconds=start)

    def _train_phase(self, phase: Phase, interrupted: Interruption, bar: Bar) -> bool:
        """Train until the phase is over or the run is interrupted; return whether it was interrupted."""
        if self._is_over(phase):
            self.at.begin_next_phase()
            return False
        self._begin(phase)
        loader, recipe = phase.loader(), self.settings.recipe
        with closing(loader.stream(self.at.phase_step)) as batches:
            for batch in batches:
                self._train_on(batch, phase)
                bar.advance()
                saves, evaluates = self._due(recipe.checkpoint_every), self._due(recipe.evaluate_every)
                # Several processes agree on stopping when they communicate anyway; a single process stops at once.
                alone = self.world.size == 1 and bool(interrupted)
                stop = False
                logs = self._due(recipe.log_every) or self._checks_time(phase)
                if saves or evaluates or alone or logs or self._is_over(phase):
                    self._flush(loader, phase, bar)
                    stop = self.world.any(bool(interrupted))
                over = self._is_over(phase)
                if over:
                    # Before saving, so that the end of a phase and the start of the next are the same checkpoint.
                    self.at.begin_next_phase()
                if evaluates and not stop:
                    self._evaluate()
                    stop = self.world.any(bool(interrupted))
                if stop:
                    return True
                if saves:
                    self._save()
                if over:
                    return False
                # The evaluation or the checkpoint used up the time.
                if self._is_over(phase):
                    self.at.begin_next_phase()
                    return False
        return False

    def _begin(self, phase: Phase) -> None:
        """Set up a phase: the trained parameters, and a new step, because CUDA graphs and DDP depend on them."""
        phase.begin()
        self._check_data(phase)
        self._lr = phase.lr
        self.optimizers.scale(phase.scales)
        kind = CudaGraphStep if uses_cuda_graph(self.settings.recipe.cuda_graph, self.world) else Step
        self.step = kind(self.objective, self.optimizers, self.world, accumulate=self.settings.recipe.accumulate)
        self.first_step.expected = True
        if self._due(self.settings.recipe.evaluate_every) or (self.settings.evaluates_start and not self.at.step):
            self._evaluate()

    def _check_data(self, phase: Phase) -> None:
        """Check that the data of an interrupted phase has not changed."""
        content = phase.content()
        if self.at.data not in ("", content):
            raise InputError(
                f"the data of phase {self.at.phase + 1} has changed since the phase was started; restore the data, or "
                "set out= to another folder to train on the new data"
            )
        self.at.data = content

    def _train_on(self, batch: Batch, phase: Phase) -> None:
        """Run one step with the learning rate and random seed of the current position."""
        at, idle = self.at, self.at.phase_idle
        # Idle time doesn't count as progress: after a long compilation the schedule would skip its warm-up.
        progress_now = progress_of(at.phase_step, phase.steps, at.phase_seconds - idle, self._budget(phase) - idle)
        rate = phase.lr * phase.schedule.factor(progress_now, phase.steps)
        self.optimizers.set_rate(rate)
        torch.manual_seed(bits(self.settings.recipe.seed, Stream.DROPOUT, self.at.step, self.world.rank, 0))
        batch = replace(batch, step=torch.tensor(self.at.step))
        self._tokens += int(batch.mask.count_nonzero())
        with self.first_step.timed(self._bar):
            tally = self.step(batch.to(self.world.device))
        self.at.step += 1
        self.at.phase_step += 1
        self._pending.append((self.at.step, rate, tally))

    def _due(self, every: int) -> bool:
        return bool(every) and self.at.step > 0 and self.at.step % every == 0

    def _budget(self, phase: Phase) -> float:
        """The seconds of a phase: a part of the time budget in proportion to its steps."""
        total = sum(phase.steps for phase in self.phases)
        return 60 * self.settings.recipe.max_minutes * (phase.steps / total if total else 1.0)

    def _is_over(self, phase: Phase) -> bool:
        budget = self._budget(phase)
        return bool(phase.steps and self.at.phase_step >= phase.steps) or 0 < budget <= self.at.phase_seconds

    def _checks_time(self, phase: Phase) -> bool:
        """Whether to measure the time now, for the schedule and the end of the phase; the same for all processes."""
        budget = self._budget(phase)
        if budget and self.world.size > 1:
            # The first steps one by one, because the time up to the first measurement doesn't count for the schedule.
            return self.at.phase_step <= _STEPS_BETWEEN_TIME_CHECKS or self._due(_STEPS_BETWEEN_TIME_CHECKS)
        # Between two measurements, a rate that depends on the time doesn't change.
        between = min(_SHARE_BETWEEN_TIME_CHECKS * budget, budget - self.at.phase_seconds)
        return bool(budget) and monotonic() - self._counted_at >= between

    def _count_time(self, seconds: float, *, idle: bool) -> None:
        """Add time to the current phase, as measured by the main process; does nothing after the last phase."""
        self._counted_at = monotonic()
        if self.at.phase < len(self.phases):
            seconds = self.world.broadcast(seconds)
            self.at.phase_seconds += seconds
            self.at.phase_idle += seconds if idle else 0.0

    def _flush(self, loader: Batches, phase: Phase, bar: Bar) -> None:
        """Fetch and log the numbers of the steps since the last flush; stop after too many skipped steps in a row."""
        if not self._pending:
            return
        rows = self.world.sum(torch.stack([tally for _, _, tally in self._pending])).tolist()
        starting = not self.meter.started
        self._count_time(self.meter.lap(int(self.world.total(self._tokens))), idle=starting)
        self._tokens = 0
        first, worst = self.at.phase_step - len(rows), 0
        for offset, ((step, rate, _), row) in enumerate(zip(self._pending, rows, strict=True)):
            *sums, norm, finite = row
            values = self.objective.summary(dict(zip(self.objective.tallies, sums, strict=True)))
            values |= {"lr": rate, "norm": norm / self.world.size}
            if finite:
                self.at.bad_in_a_row = 0
                self._losses.append(values["loss"])
                self._log("train", step, values)
            else:
                self.at.bad_in_a_row += 1
                worst = max(worst, self.at.bad_in_a_row)
                self._log("skipped", step, {**values, "examples": loader.examples(first + offset).tolist()})
        self._pending.clear()
        if self.metrics is not None:
            self.metrics.flush(sync=False)
        speed = {"tokens/s": f"{self.meter.latest:,.0f}"}
        if self.settings.peak:
            speed["of peak"] = f"{self.meter.latest / self.settings.peak / self.world.size:.1%}"
        if budget := self._budget(phase):
            later = sum(other.steps for other in self.phases[self.at.phase + 1 :])
            bar.total = bar.done + steps_left(self.at.phase_step, phase.steps, later, budget / self.at.phase_seconds)
        bar.note(loss=values["loss"], **speed)
        if worst > MAX_SKIPPED_IN_A_ROW:
            raise diverged(
                f"skipped {worst} steps in a row before step {self.at.step + 1}: the gradients were not finite; "
                f"'{self.settings.out / 'metrics.jsonl'}' lists their examples",
                phase.lr,
            )

    def _log(self, kind: str, step: int, values: dict[str, Any]) -> None:
        if self.metrics is not None:
            self.metrics.write(kind, step, values)

    def _evaluate(self) -> None:
        """Evaluate on held-out data, at most once per step."""
        measure = self.phases[min(self.at.phase, len(self.phases) - 1)].measure or self.measure
        if measure is None:
            return
        known = None if self.metrics is None else self.metrics.held_out.get(self.at.step)
        # Only the main process has the log; either every process evaluates or none does.
        if self.world.any(known is not None):
            self.held_out_metrics = numbers(known or {})
        else:
            measured = measure(self.step)
            self.held_out_metrics = numbers(measured)
            self._log("held-out", self.at.step, measured)
            self._count_time(self.meter.pause(), idle=True)
            if self.world.is_main:
                self.report(self.at.step, fmean(self._losses) if self._losses else math.nan, self.held_out_metrics)
            self._losses.clear()
        if self.held_out_metrics:
            self._bar.note(**{"held-out": headline(self.held_out_metrics)})
        self.best.update(self.held_out_metrics, self.at)

    def _save(self) -> None:
        """Save a checkpoint if the position changed since the last one; the log is flushed first."""
        if self.metrics is not None:
            self.metrics.flush()
        if self._saved is not None and self.at.is_at(self._saved):
            return
        check_weights(self.objective, self.at, self._lr, self.world)
        self._saved = self.at.facts()
        weights = {name: p.detach() for name, p in self.objective.named_parameters()}
        groups = {"weights": gather(weights, self.world), "optimizer": gather(self.optimizers.tensors(), self.world)}
        if self.best.weights:
            groups["best"] = gather(self.best.weights, self.world)
        if self.world.is_main:
            checkpoint.save(self.folder, self.at.step, Checkpoint(groups, self._saved), self.settings.recipe.keep)
        self.world.barrier()
        self._count_time(self.meter.pause(), idle=True)

    def _resume(self) -> None:
        """Load weights, optimizer state and position from the newest intact checkpoint, if there is one."""
        if self.world.is_main:
            self.folder.mkdir(parents=True, exist_ok=True)
            sweep(self.settings.out)
            sweep(self.folder)
        self.world.barrier()
        saved = checkpoint.load_newest(self.folder)
        if saved is None:
            return
        weights = {name: p.data for name, p in self.objective.named_parameters()}
        checkpoint.restore(weights, saved.groups.get("weights", {}), "weights")
        checkpoint.restore(self.optimizers.tensors(), saved.groups.get("optimizer", {}), "optimizer state")
        self.at, self._saved = from_mapping(Position, saved.facts), saved.facts
        if self.at.phase == len(self.phases) == 1 and self.phases[0].steps > self.at.step:
            # A finished run goes on with more steps.
            self.at.phase, self.at.phase_step = 0, self.at.step
        if self.at.best_step >= 0:
            self.best.load(saved.groups.get("best", {}))


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
