"""Train the rows of a table, in processes of their own, and collect their results.

Every run resumes where it stopped, and finished runs are read: the same command continues a table that was stopped.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import commands
from benchmarks.commands import Row, Run, WorkQueue, environment, finetuned_runs, read_object, run_command
from lightbert.errors import InputError
from lightbert.progress import progress
from lightbert.train.signals import Interruption

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
"""What all rows share, whatever their paper used, so that they differ in the model or in their own setting only."""
_FINETUNING = "glue-convbert-small"
"""Its lower rates for lower layers suit models after few tokens. With one rate, as in Chang et al., most forget."""

LEAST_GAIN = 0.01
"""A row whose held-out accuracy is less above that of trivial predictions is still on the plateau of the start."""
_MOST_FREQUENT = 0.15
"""About the accuracy of masked-language models before they use the context."""
_FINETUNE, _CONTINUE, _BEGIN = range(3)
"""The order of work: fine-tunings, then pre-trainings that were started before, then new ones."""


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
    """The number of processes at once: pre-trainings, and fine-tunings with one seed each."""
    minutes: float = 0.0
    """After this time all processes save and stop; 0: no limit."""
    overrides: tuple[str, ...] = ()
    """More keys of pre-training, such as compile=none."""
    finetuning: tuple[str, ...] = ()
    """More keys of fine-tuning, such as epochs=1."""


@dataclass(frozen=True)
class Arm:
    """A row: a pre-training recipe, perhaps with other settings, and the average GLUE score that a paper reports."""

    label: str
    recipe: str
    paper: float | None = None
    overrides: tuple[str, ...] = ()
    """Keys of pre-training that this row changes, such as lr=1e-3."""
    batch_factor: float = 1.0
    """The batch relative to that of the other rows; the steps are divided by it, so that the tokens are the same."""

    @property
    def name(self) -> str:
        """The recipe and what the row changes, for folders and the command line."""
        resized = [] if self.batch_factor == 1 else [f"batch-x{self.batch_factor:g}"]
        return "-".join([self.recipe, *(word.replace("=", "-") for word in self.overrides), *resized])


@dataclass(frozen=True)
class Outcome:
    """A finished row with one pre-training seed: held-out metrics, and each task's score for each fine-tuning seed."""

    arm: Arm
    seed: int
    held_out: dict[str, float]
    scores: dict[str, tuple[float, ...]]
    commit: str = "unknown"

    @property
    def mean(self) -> float:
        """The mean over tasks of the median score, in points."""
        medians = [100 * median(scores) for scores in self.scores.values()]
        return sum(medians) / len(medians)


def pretraining_command(arm: Arm, seed: int, protocol: Protocol) -> list[str]:
    """The words of the command that pre-trains a row."""
    steps, batch = _resized(arm, protocol)
    own = (f"steps={steps}", f"batch={batch}", f"seed={seed}", f"data={protocol.data}")
    out = f"out={folder_of(arm, seed, protocol)}"
    return ["lightbert", "pretrain", arm.recipe, *PROTOCOL, *arm.overrides, *own, *protocol.overrides, out]


def settings_of(arm: Arm, protocol: Protocol) -> tuple[str, ...]:
    """What a row changes, as words of its command."""
    steps, batch = _resized(arm, protocol)
    return (*arm.overrides, *((f"steps={steps}", f"batch={batch}") if arm.batch_factor != 1 else ()))


@dataclass(frozen=True)
class Table:
    """Rows that differ in one part of the model or in one setting, otherwise trained and fine-tuned in the same way."""

    title: str
    source: str
    """Where the papers' figures are from; "" without figures."""
    arms: tuple[Arm, ...]

    @property
    def figures(self) -> dict[str, float]:
        """The paper's figures by label; empty if the table is not from a paper."""
        return {arm.label: arm.paper for arm in self.arms if arm.paper is not None}


def check_rows(table: Table, protocol: Protocol) -> None:
    """Check that all rows read the same number of tokens, and that no key for all rows undoes the change of one."""
    given = {word.partition("=")[0] for word in protocol.overrides}
    for arm in table.arms:
        steps, batch = _resized(arm, protocol)
        if steps * batch != protocol.steps * protocol.batch:
            raise InputError(
                f"--steps and --batch must be even for the row '{arm.name}', got {protocol.steps} and "
                f"{protocol.batch}; change them, or choose other rows with --rows"
            )
        for word in settings_of(arm, protocol):
            key = word.partition("=")[0]
            if key in given:
                raise InputError(
                    f"{key} can't be set for all rows, because the row '{arm.name}' changes it; remove it from the "
                    "command, or choose other rows with --rows"
                )


def _resized(arm: Arm, protocol: Protocol) -> tuple[int, int]:
    """The steps and the batch of a row."""
    return int(protocol.steps / arm.batch_factor), int(protocol.batch * arm.batch_factor)


def finetuning_command(arm: Arm, seed: int, task_seed: int, protocol: Protocol) -> list[str]:
    """The words of the command that fine-tunes a row on all tasks with one seed; the encoder keeps its dropout."""
    folder = folder_of(arm, seed, protocol)
    chosen = (f"tasks=[{','.join(protocol.tasks)}]", f"seeds=[{task_seed}]", f"data={protocol.glue}")
    out = f"out={folder / 'tasks' / str(task_seed)}"
    model = f"model={folder / 'final'}"
    return ["lightbert", "finetune", _FINETUNING, model, *chosen, "head.dropout=0.0", *protocol.finetuning, out]


def folder_of(arm: Arm, seed: int, protocol: Protocol) -> Path:
    """The folder of a row's run; rows that several tables share are trained once."""
    return protocol.out / f"{arm.name}-{seed}"


def run_table(table: Table, protocol: Protocol, interrupted: Interruption | None = None) -> list[Outcome]:
    """Train and fine-tune all rows, in as many processes at once as there are jobs; return those that finished.

    A row that is pre-trained is fine-tuned before other rows start: a table that stops early has more finished rows.
    """
    deadline = time.monotonic() + 60 * protocol.minutes if protocol.minutes else float("inf")
    queue: WorkQueue[Run] = WorkQueue(protocol.jobs, lambda: bool(interrupted) or time.monotonic() > deadline)
    arms = [(arm, seed) for seed in protocol.seeds for arm in table.arms]
    rows = [_row(place, arm, seed, protocol) for place, (arm, seed) in enumerate(arms)]

    def add_finetunings(place: int) -> None:
        if is_on_plateau(_held_out(*arms[place], protocol) or {}):
            message = "has hardly left the plateau; try another lr= or more steps"
            print(f"{rows[place].label}: {message}", file=sys.stderr)
        for run in rows[place].finetunings:
            if not run.is_finished:
                queue.add((_FINETUNE, place), run)

    def work(run: Run) -> bool:
        """Run a command unless another table has finished it meanwhile; return whether it is finished."""
        if run.is_finished:
            return True
        commands.begin(run.record, run.command)
        code = run_command(run.command, run.log, queue.is_over, environment(protocol.jobs))
        if code == 0:
            commands.finish(run.record)
        elif not queue.is_over():
            print(f"{rows[run.place].label}: {run.command[1]} failed; see {run.log}", file=sys.stderr)
        return code == 0

    def ended(run: Run, finished: bool) -> None:
        row = rows[run.place]
        if finished and run is row.pretraining:
            add_finetunings(run.place)
            bar.advance(row.n_finished)
        elif finished or not queue.is_over():
            bar.advance()

    protocol.out.mkdir(parents=True, exist_ok=True)
    for place, row in enumerate(rows):
        if row.pretraining.is_finished:
            add_finetunings(place)
        else:
            queue.add((_CONTINUE if row.pretraining.record.exists() else _BEGIN, place), row.pretraining)
    total, done = len(rows) * (1 + len(protocol.task_seeds)), sum(row.n_finished for row in rows)
    with progress("training", total=total, unit="runs", done=done) as bar:
        queue.run(work, ended)
    # Results of other settings may be in the folder of a row that failed.
    outcomes = [read_outcome(*arm, protocol) if row.is_finished else None for arm, row in zip(arms, rows, strict=True)]
    for row, outcome in zip(rows, outcomes, strict=True):
        if outcome is None:
            lost = f"; results are missing in '{Path(row.pretraining.path).name}'" if row.is_finished else ""
            print(f"{row.state}{lost}", file=sys.stderr)
    return [outcome for outcome in outcomes if outcome is not None]


def _row(place: int, arm: Arm, seed: int, protocol: Protocol) -> Row:
    """The runs of a row."""
    path = str(folder_of(arm, seed, protocol))
    pretraining = Run(place, pretraining_command(arm, seed, protocol), path)
    commands = {each: finetuning_command(arm, seed, each, protocol) for each in protocol.task_seeds}
    finetunings = tuple(Run(place, command, f"{path}-{each}") for each, command in commands.items())
    return Row(f"{arm.label}, seed {seed}", pretraining, finetunings)


def read_outcome(arm: Arm, seed: int, protocol: Protocol) -> Outcome | None:
    """Read the results of a row; None if it is not finished."""
    folder, held_out = folder_of(arm, seed, protocol), _held_out(arm, seed, protocol)
    if held_out is None:
        return None
    found: dict[str, dict[int, float]] = {}
    for run in finetuned_runs([folder / "tasks"]):
        found.setdefault(run.task, {})[run.seed] = run.score
    wanted = {(task, seed) for task in protocol.tasks for seed in protocol.task_seeds}
    if not wanted <= {(task, seed) for task, scores in found.items() for seed in scores}:
        return None
    scores = {task: tuple(found[task][seed] for seed in protocol.task_seeds) for task in protocol.tasks}
    record = commands.read(Path(f"{folder}.json"))
    return Outcome(arm, seed, held_out, scores, ", ".join(record.commits) if record is not None else "unknown")


def is_on_plateau(held_out: dict[str, float]) -> bool:
    """Whether a row has learned little more than the frequencies of tokens: "original" everywhere, or one word."""
    if "rtd_accuracy" in held_out:
        return held_out["rtd_accuracy"] - (1 - held_out["replaced"]) < LEAST_GAIN
    return held_out.get("mlm_accuracy", 1.0) - _MOST_FREQUENT < LEAST_GAIN


def _held_out(arm: Arm, seed: int, protocol: Protocol) -> dict[str, float] | None:
    """The held-out metrics of a pre-training; None if it is not finished."""
    path = folder_of(arm, seed, protocol) / "result.json"
    return dict(read_object(path)["held_out"]) if path.is_file() else None


def _settings(label: str, *overrides: str, batch_factor: float = 1.0) -> Arm:
    """A row of the table of settings: ConvBERT-small with a change."""
    return Arm(label, "convbert-small-rtd", None, overrides, batch_factor)


TABLES = {
    "convolutions": Table(
        "Ways to integrate convolution",
        "ConvBERT Table 2, GLUE dev",
        (
            Arm("none (BERT-small)", "bert-small-rtd", 80.4),
            Arm("conventional", "convbert-small-conventional-rtd", 78.2),
            Arm("dynamic", "convbert-small-dynamic-rtd", 80.6),
            Arm("span-based dynamic", "convbert-small-rtd", 81.4),
        ),
    ),
    "kernel-sizes": Table(
        "Kernel size of span-based dynamic convolution",
        "ConvBERT Figure 5, GLUE dev",
        (
            Arm("1", "convbert-small-kernel-1-rtd", 79.6),
            Arm("5", "convbert-small-kernel-5-rtd", 81.1),
            Arm("9", "convbert-small-rtd", 81.4),
            Arm("17", "convbert-small-kernel-17-rtd", 81.2),
        ),
    ),
    "lightweight": Table(
        "Lightweight convolutions in self-attention",
        "Chang et al. Tables 1 and 7, GLUE test",
        (
            Arm("none", "composite-small-none-mlm", 68.4),
            Arm("absolute positions", "composite-small-absolute-mlm", 71.1),
            Arm("fixed", "composite-small-fixed-mlm", 74.5),
            Arm("dynamic", "composite-small-dynamic-mlm", 74.7),
            Arm("composite", "composite-small-mlm", 75.2),
            Arm("their ConvBERT", "composite-small-convbert-mlm", 70.3),
        ),
    ),
    "settings": Table(
        "Settings of pre-training",
        "",
        (
            _settings("common settings"),
            _settings("learning rate 1e-3", "lr=1e-3"),
            _settings("learning rate 1.5e-3", "lr=1.5e-3"),
            _settings("Muon", "optimizer.kind=muon"),
            _settings("half the batch and twice the steps", batch_factor=0.5),
            _settings("twice the batch and half the steps", batch_factor=2),
            _settings("β₂ 0.98", "optimizer.beta2=0.98"),
            _settings("warm-up 2 %", "schedule.warmup=0.02"),
            _settings("warmup-stable-decay", "schedule.kind=wsd"),
            _settings("generator 1/2", "generator=0.5"),
            _settings("dropout 0.1", "dropout=0.1"),
            _settings("mask rate 25 %", "masking.rate=0.25"),
            _settings("loss weight 25", "rtd_weight=25"),
            _settings("loss weight 100", "rtd_weight=100"),
            _settings("embeddings trained by the generator", "shared_embeddings=generator"),
            _settings("packed rows", "examples=packed"),
        ),
    ),
}
