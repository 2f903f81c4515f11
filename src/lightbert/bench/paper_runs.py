"""Train the rows of a paper's table, each in a process of its own, and collect their results.

Every run resumes where it stopped, and finished runs are read: the same command continues an interrupted table.
"""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from lightbert.bench.paper_tables import Arm, Table
from lightbert.progress import progress

PROTOCOL = (
    "examples=segments",
    "lr=5e-4",
    "dropout=0.0",
    "optimizer.bias_correction=true",
    "schedule.kind=linear",
    "schedule.warmup=0.1",
    "checkpoint_every=0",
    "evaluate_every=0",
    "evaluate_batches=100",
)
"""What all rows of all tables share, whatever their paper used, so that they differ in the model only."""


@dataclass(frozen=True)
class Protocol:
    """How every row is trained: the data, the length of the runs and the seeds."""

    data: Path
    glue: Path
    out: Path
    steps: int = 6_000
    batch: int = 256
    seeds: tuple[int, ...] = (0,)
    tasks: tuple[str, ...] = ("cola", "mrpc", "stsb")
    task_seeds: tuple[int, ...] = (0, 1, 2)
    jobs: int = 1
    minutes: float = 0.0
    """No run is started after this time; 0: no limit."""
    overrides: tuple[str, ...] = ()
    """More keys of pre-training, such as compile=none."""


@dataclass(frozen=True)
class Outcome:
    """A finished row with one pre-training seed: held-out metrics, and each task's score for each fine-tuning seed."""

    arm: Arm
    seed: int
    held_out: dict[str, float]
    scores: dict[str, tuple[float, ...]]

    @property
    def mean(self) -> float:
        """The mean over tasks of the median score, in points."""
        medians = [100 * median(scores) for scores in self.scores.values()]
        return sum(medians) / len(medians)


def pretraining_command(arm: Arm, seed: int, protocol: Protocol) -> list[str]:
    """The words of the command that pre-trains a row."""
    own = (f"steps={protocol.steps}", f"batch={protocol.batch}", f"seed={seed}", f"data={protocol.data}")
    out = f"out={folder_of(arm, seed, protocol)}"
    return ["lightbert", "pretrain", arm.recipe, *PROTOCOL, *own, *protocol.overrides, out]


def finetuning_command(arm: Arm, seed: int, table: Table, protocol: Protocol) -> list[str]:
    """The words of the command that fine-tunes a row on all tasks."""
    folder = folder_of(arm, seed, protocol)
    tasks, seeds = ",".join(protocol.tasks), ",".join(map(str, protocol.task_seeds))
    chosen = (f"tasks=[{tasks}]", f"seeds=[{seeds}]", f"data={protocol.glue}", "change.dropout=0.1")
    return ["lightbert", "finetune", table.finetuning, f"model={folder / 'final'}", *chosen, f"out={folder / 'tasks'}"]


def folder_of(arm: Arm, seed: int, protocol: Protocol) -> Path:
    """The folder of a row's run; rows that several tables share are trained once."""
    return protocol.out / f"{arm.recipe}-{seed}"


def run_table(table: Table, protocol: Protocol) -> list[Outcome]:
    """Train and fine-tune all rows, as many at once as there are jobs; return those that finished."""
    started = time.monotonic()
    wanted = [(arm, seed) for seed in protocol.seeds for arm in table.arms]

    def work(arm: Arm, seed: int) -> None:
        if protocol.minutes and time.monotonic() - started > 60 * protocol.minutes:
            return
        log = folder_of(arm, seed, protocol).with_suffix(".log")
        for command in (pretraining_command(arm, seed, protocol), finetuning_command(arm, seed, table, protocol)):
            if _run(command, log) != 0:
                print(f"{arm.label}, seed {seed}: {command[1]} failed; see {log}", file=sys.stderr)
                return

    protocol.out.mkdir(parents=True, exist_ok=True)
    with (
        ThreadPoolExecutor(protocol.jobs) as pool,
        progress("training", total=len(wanted), unit="rows") as bar,
    ):
        for done in [pool.submit(work, *each) for each in wanted]:
            done.result()
            bar.advance()
    outcomes = [read_outcome(arm, seed, protocol) for arm, seed in wanted]
    return [outcome for outcome in outcomes if outcome is not None]


def read_outcome(arm: Arm, seed: int, protocol: Protocol) -> Outcome | None:
    """Read the results of a row; None if it is not finished."""
    folder = folder_of(arm, seed, protocol)
    held_out, tasks = _read(folder / "result.json"), _read(folder / "tasks" / "runs.json")
    if held_out is None or tasks is None:
        return None
    scores = {each["task"]: tuple(run["metrics"][each["metric"]] for run in each["runs"]) for each in tasks}
    complete = all(len(scores.get(task, ())) == len(protocol.task_seeds) for task in protocol.tasks)
    return Outcome(arm, seed, held_out["held_out"], scores) if complete else None


def _run(command: list[str], log: Path) -> int:
    with log.open("a", encoding="utf-8") as file:
        print(f"$ {' '.join(command)}", file=file, flush=True)
        return subprocess.run([sys.executable, "-m", *command], stdout=file, stderr=file, check=False).returncode


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
