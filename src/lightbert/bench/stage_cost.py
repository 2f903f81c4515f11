"""The cost of a stage of progressive transfer compared with a step that transfers all layers.

    python -m lightbert.bench.stage_cost [--teacher ib-bert-nano] [--student mobilebert-nano] [--depth 24] [--batch 4] …

A step is a training step: masking, the teacher without gradient, the student's forward and backward pass, LAMB. Stage ℓ
runs ℓ layers of both models and trains those of the student. Stages alternate, and medians are compared. On a GPU:
--teacher ib-bert-large --student mobilebert --vocab 30522 --batch 256 --length 128 --compile blocks.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import Literal

import torch

from lightbert.config import from_mapping, to_mapping
from lightbert.data.batches.batch import Batch
from lightbert.data.batches.masking_settings import Masking
from lightbert.data.examples.specials import Specials
from lightbert.errors import InputError
from lightbert.models import build, preset
from lightbert.objectives.distill.objective import Distillation
from lightbert.objectives.distill.stages import Stage, auxiliary_stages, joint_stages, progressive_stages
from lightbert.objectives.distill.transfer_settings import Transfer
from lightbert.objectives.masker import Masker
from lightbert.train.compilation import compile_objective
from lightbert.train.distributed import World, resolve_device
from lightbert.train.optim import Optimizers
from lightbert.train.optimizer_settings import OptimizerSettings
from lightbert.train.step import Step

_SPECIALS = Specials(pad=0, cls=1, sep=2, mask=3)


@dataclass(frozen=True)
class Sizes:
    """The presets of teacher and student, both changed to the same depth, and the shapes of a batch."""

    teacher: str = "ib-bert-nano"
    student: str = "mobilebert-nano"
    depth: int = 24
    vocab: int = 2000
    batch: int = 4
    length: int = 32
    device: str = "auto"
    compile: Literal["none", "blocks"] = "none"


@dataclass(frozen=True)
class Costs:
    """Median milliseconds per step."""

    depth: int
    first: float
    """The stage of layer 1."""
    last: float
    """The stage of the last layer."""
    joint: float
    """All layers at once."""
    auxiliary: float
    """All layers and the predictions."""

    @property
    def first_of_full(self) -> float:
        """The first stage as a fraction of a step that transfers all layers."""
        return self.first / self.joint

    def __str__(self) -> str:
        rows = [
            (f"PKT, stage 1 of {self.depth}", self.first),
            (f"PKT, stage {self.depth} of {self.depth}", self.last),
            ("JKT, all layers", self.joint),
            ("AKT, all layers and predictions", self.auxiliary),
        ]
        lines = [f"{name:32} {cost:10.2f} {cost / self.joint:8.2f}" for name, cost in rows]
        return "\n".join([f"{'step':32} {'ms':>10} {'of JKT':>8}", *lines])


def measure(sizes: Sizes, rounds: int, steps: int) -> Costs:
    """Time ``steps`` steps of each stage after as many warm-up steps, alternating for ``rounds`` rounds."""
    world = World(0, 1, resolve_device(sizes.device))
    objective, batch = _pair(sizes, world), _batch(sizes).to(world.device)
    optimizers = Optimizers(objective, OptimizerSettings(kind="lamb"))
    every = progressive_stages(sizes.depth, sizes.depth)
    stages = [every[0], every[-1], *joint_stages(sizes.depth, 1), *auxiliary_stages(sizes.depth, 1)]
    found: list[list[float]] = [[] for _ in stages]
    for _ in range(rounds):
        for stage, times in zip(stages, found, strict=True):
            times.append(_seconds(objective, optimizers, world, stage, batch, steps))
    return Costs(sizes.depth, *(1000 * statistics.median(times) for times in found))


def _pair(sizes: Sizes, world: World) -> Distillation:
    same = {"depth": sizes.depth, "vocab": sizes.vocab, "positions": sizes.length}
    configs = [preset(name) for name in (sizes.teacher, sizes.student)]
    resized = [from_mapping(type(config), to_mapping(config) | same) for config in configs]
    teacher, student = (build(config, heads={"mlm": {}, "nsp": {}}, seed=seed) for seed, config in enumerate(resized))
    masker = Masker(Masking(), _SPECIALS, vocab=sizes.vocab, seed=0)
    objective = Distillation(student, masker, teacher, transfer=Transfer()).to(world.device)
    compile_objective(objective, sizes.compile, world.device, teacher)
    return objective.train()


def _batch(sizes: Sizes) -> Batch:
    shape = (sizes.batch, sizes.length)
    return Batch(
        ids=torch.randint(4, sizes.vocab, shape),
        mask=torch.ones(shape, dtype=torch.bool),
        segments=torch.zeros(shape, dtype=torch.int64),
        rows=torch.arange(sizes.batch),
        step=torch.tensor(0),
        nsp=torch.zeros(sizes.batch, dtype=torch.int64),
    )


def _seconds(
    objective: Distillation, optimizers: Optimizers, world: World, stage: Stage, batch: Batch, steps: int
) -> float:
    """Seconds per step of a stage."""
    objective.set_stage(stage)
    optimizers.scale(stage.scales)
    optimizers.set_rate(1e-6)
    step = Step(objective, optimizers, world)
    start = 0.0
    for number in range(2 * steps):
        if number == steps:
            _synchronize(world)
            start = time.perf_counter()
        step(batch)
    _synchronize(world)
    return (time.perf_counter() - start) / steps


def _synchronize(world: World) -> None:
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)


def main() -> None:
    """Run the benchmark with the options of the command line, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in asdict(Sizes()).items():
        choices = ["none", "blocks"] if name == "compile" else None
        parser.add_argument(f"--{name}", type=type(default), default=default, choices=choices)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="timed steps per round, after as many warm-up steps")
    parser.add_argument("--json", action="store_true")
    arguments = vars(parser.parse_args())
    as_json, rounds, steps = (arguments.pop(name) for name in ("json", "rounds", "steps"))
    sizes = Sizes(**arguments)
    try:
        costs = measure(sizes, rounds, steps)
    except InputError as error:
        sys.exit(f"lightbert: {error}")
    metrics = {**asdict(costs), "first_of_full": costs.first_of_full}
    print(json.dumps({"metrics": metrics, "sizes": asdict(sizes)}) if as_json else costs)


if __name__ == "__main__":
    main()
