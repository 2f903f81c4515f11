"""The loop: steps, logs, evaluations and checkpoints, for any objective. It never learns what it trains."""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lightbert.data.batches.batch import Batch
from lightbert.errors import InputError
from lightbert.objectives.objective import Objective
from lightbert.ops.randomness import Stream, bits
from lightbert.progress import Bar, progress
from lightbert.train import checkpoint
from lightbert.train.best import Best
from lightbert.train.checkpoint import Checkpoint
from lightbert.train.cuda_graph import CudaGraphStep
from lightbert.train.distributed import World
from lightbert.train.log import Meter, MetricsFile, TensorBoard
from lightbert.train.optim import Optimizers
from lightbert.train.run import Batches, Outcome, Phase, Position, Settings
from lightbert.train.schedule import progress_of
from lightbert.train.sharding import gathered, shard
from lightbert.train.signals import Interruption
from lightbert.train.step import Step

_BAD_STEPS_ALLOWED = 5


class Loop:
    """A run in progress. Everything it needs to go on after a kill is in its newest checkpoint.

    Every random number of a step follows from (seed, step, process), so that nothing but the position has to be saved.
    ``measure`` gives the held-out numbers; the same weights must give the same ones every time.
    """

    def __init__(
        self,
        objective: Objective,
        phases: list[Phase],
        settings: Settings,
        world: World,
        measure: Callable[[Step], dict[str, float]] | None,
    ) -> None:
        self.objective, self.phases, self.settings = objective.to(world.device), phases, settings
        self.world, self.measure = world, measure
        if settings.sharding == "shard" and world.size > 1:
            shard(objective, world)
        self.optimizers = Optimizers(objective, settings.recipe.optimizer)
        self.step = Step(objective, self.optimizers, world)
        self.folder = settings.out / "checkpoints"
        self.at = Position()
        self.best = Best(settings.best, objective, world)
        self._saved: dict[str, Any] | None = None
        self.meter = Meter()
        self._resume()
        self.metrics = self._log_from(self.at.step) if world.is_main else None
        self.held_out_numbers: dict[str, float] = {}
        self._pending: list[tuple[int, float, Tensor]] = []

    def run(self, interrupted: Interruption) -> Outcome:
        """Train from the position to the end, or to the first interruption."""
        self.objective.train()
        total = sum(phase.steps for phase in self.phases)
        stopped = False
        with nullcontext() if self.metrics is None else closing(self.metrics):
            with self._progress(total) as bar:
                while self.at.phase < len(self.phases) and not stopped:
                    stopped = self._train_phase(self.phases[self.at.phase], interrupted, bar)
            if not stopped:
                self._evaluate()
            self._save()
        if not stopped and self.best.put_back() and self.metrics is not None:
            self.held_out_numbers = self.metrics.held_out[self.at.best_step]
        return Outcome(self.at.step, not stopped, self.meter.average, self.held_out_numbers, self.at.best_step)

    def _progress(self, total: int) -> AbstractContextManager[Bar]:
        """A bar for people to see; that of other processes than the first is never drawn."""
        if not self.world.is_main:
            return nullcontext(Bar("training", total, "steps", self.at.step))
        return progress("training", total=total or None, unit="steps", done=self.at.step)

    def _train_phase(self, phase: Phase, interrupted: Interruption, bar: Bar) -> bool:
        """Train until the phase is over (False) or somebody interrupts (True)."""
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
                # Processes agree on stopping where they talk to each other anyway; one alone need not wait for that.
                alone = self.world.size == 1 and bool(interrupted)
                stop = False
                if saves or evaluates or alone or self._due(recipe.log_every) or self._is_over(phase):
                    self._flush(loader, phase, bar)
                    stop = self.world.any(bool(interrupted))
                over = self._is_over(phase)
                if over:
                    # Before saving, so that the end of a phase is saved once and not again as the start of the next.
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
        return False

    def _begin(self, phase: Phase) -> None:
        """Let a phase choose what is trained, and make its step, which is recorded or shared out for that choice."""
        phase.begin()
        self.optimizers.scale(phase.scales)
        kind = CudaGraphStep if self.settings.recipe.cuda_graph and self.world.device.type == "cuda" else Step
        self.step = kind(self.objective, self.optimizers, self.world, accumulate=self.settings.recipe.accumulate)
        if self._due(self.settings.recipe.evaluate_every):
            self._evaluate()

    def _train_on(self, batch: Batch, phase: Phase) -> None:
        """One step at the position's rate and random numbers."""
        at, idle = self.at, self.at.phase_idle
        # Idle time is no progress: a rate that jumped over its warm-up after a long compilation would ruin the run.
        progressed = progress_of(at.phase_step, phase.steps, at.phase_seconds - idle, self._budget(phase) - idle)
        rate = phase.lr * phase.schedule.factor(progressed, phase.steps)
        self.optimizers.set_rate(rate)
        torch.manual_seed(bits(self.settings.recipe.seed, Stream.DROPOUT, self.at.step, self.world.rank, 0))
        batch = replace(batch, step=torch.tensor(self.at.step))
        tally = self.step(batch.to(self.world.device))
        self.at.step += 1
        self.at.phase_step += 1
        self._pending.append((self.at.step, rate, tally))

    def _due(self, every: int) -> bool:
        return bool(every) and self.at.step > 0 and self.at.step % every == 0

    def _budget(self, phase: Phase) -> float:
        """The seconds of the time budget that a phase may take: in proportion to its steps."""
        total = sum(each.steps for each in self.phases)
        return 60 * self.settings.recipe.max_minutes * (phase.steps / total if total else 1.0)

    def _is_over(self, phase: Phase) -> bool:
        budget = self._budget(phase)
        return bool(phase.steps and self.at.phase_step >= phase.steps) or 0 < budget <= self.at.phase_seconds

    def _pass(self, seconds: float, *, idle: bool) -> None:
        """Count time that went by in a phase, as the first process saw it; after the last one nothing depends on it."""
        if self.at.phase < len(self.phases):
            seconds = self.world.broadcast(seconds)
            self.at.phase_seconds += seconds
            self.at.phase_idle += seconds if idle else 0.0

    def _flush(self, loader: Batches, phase: Phase, bar: Bar) -> None:
        """Fetch the numbers of the steps since the last time, write them, and give up after too many bad steps."""
        if not self._pending:
            return
        rows = self.world.sum(torch.stack([tally for _, _, tally in self._pending])).tolist()
        starting = not self.meter.started
        self._pass(self.meter.lap(len(rows) * phase.tokens), idle=starting)
        first, worst = self.at.phase_step - len(rows), 0
        for offset, ((step, rate, _), row) in enumerate(zip(self._pending, rows, strict=True)):
            *sums, norm, finite = row
            values = self.objective.summary(dict(zip(self.objective.tallies, sums, strict=True)))
            values |= {"lr": rate, "norm": norm / self.world.size}
            if finite:
                self.at.bad_in_a_row = 0
                self._log("train", step, values)
            else:
                self.at.bad_in_a_row += 1
                worst = max(worst, self.at.bad_in_a_row)
                self._log("skipped", step, {**values, "examples": loader.examples(first + offset).tolist()})
        self._pending.clear()
        speed = {"tokens/s": f"{self.meter.latest:,.0f}"}
        if self.settings.peak_flops:
            share = self.meter.latest * self.settings.flops_per_token / self.settings.peak_flops / self.world.size
            speed["of peak"] = f"{share:.1%}"
        if not phase.steps:
            # With nothing but a time budget, the steps there will be follow from the pace so far.
            bar.total = round(self.at.phase_step * self._budget(phase) / self.at.phase_seconds)
        bar.note(loss=values["loss"], **speed)
        if worst > _BAD_STEPS_ALLOWED:
            raise InputError(
                f"{worst} steps in a row before step {self.at.step + 1} had no finite gradient and were not applied; "
                f"their examples are listed in '{self.settings.out / 'metrics.jsonl'}': try a rate below lr = "
                f"{phase.lr} in another folder out="
            )

    def _log_from(self, step: int) -> MetricsFile:
        """The log, without what came after the checkpoint."""
        out = self.settings.out
        board = TensorBoard(out / "tensorboard", step) if self.settings.recipe.tensorboard else None
        return MetricsFile(out / "metrics.jsonl", step, board)

    def _log(self, kind: str, step: int, values: dict[str, Any]) -> None:
        if self.metrics is not None:
            self.metrics.write(kind, step, values)

    def _evaluate(self) -> None:
        """Measure on held-out text, once per step at most."""
        if self.measure is None:
            return
        known = None if self.metrics is None else self.metrics.held_out.get(self.at.step)
        # Only the first process has the log, and all of them measure or none.
        if self.world.any(known is not None):
            self.held_out_numbers = known or {}
        else:
            self.held_out_numbers = self.measure(self.step)
            self._log("held-out", self.at.step, self.held_out_numbers)
            self._pass(self.meter.pause(), idle=True)
        self.best.consider(self.held_out_numbers, self.at)

    def _save(self) -> None:
        """Write a checkpoint if there was a step since the last one; the log is safe before it is."""
        if self.metrics is not None:
            self.metrics.flush()
        if self.at.facts() == self._saved:
            return
        self._saved = self.at.facts()
        weights = {name: p.detach() for name, p in self.objective.named_parameters()}
        groups = {
            "weights": gathered(weights, self.world),
            "optimizer": gathered(self.optimizers.tensors(), self.world),
        }
        if self.best.weights:
            groups["best"] = gathered(self.best.weights, self.world)
        if self.world.is_main:
            checkpoint.save(self.folder, self.at.step, Checkpoint(groups, self._saved), self.settings.recipe.keep)
        self.world.barrier()
        self.meter.pause()

    def _resume(self) -> None:
        """Take weights, optimizer and position from the newest whole checkpoint, if there is one."""
        if self.world.is_main:
            self.folder.mkdir(parents=True, exist_ok=True)
            checkpoint.remove_partial(self.settings.out)
            checkpoint.remove_partial(self.folder)
        self.world.barrier()
        found = checkpoint.newest(self.folder)
        if found is None:
            return
        weights = {name: p.data for name, p in self.objective.named_parameters()}
        checkpoint.restore(weights, found.groups.get("weights", {}), "weights")
        checkpoint.restore(self.optimizers.tensors(), found.groups.get("optimizer", {}), "optimizer state")
        self.at, self._saved = Position(**found.facts), found.facts
        if self.at.best_step >= 0:
            self.best.resume(found.groups.get("best", {}))
