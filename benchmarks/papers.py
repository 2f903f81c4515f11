"""The papers' small tables, and one of settings: `python -m benchmarks.papers TABLE --data … --glue … --out …`.

Pre-trains every row of a table on your text, in the same way except for what the rows compare, fine-tunes it on GLUE
tasks, and writes OUT/TABLE.md and OUT/TABLE.svg. After --minutes, or on SIGTERM or SIGINT, all processes save a
checkpoint; the page has the rows that are finished. The exit code is 75 if some are not, and the same command continues
them.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

from benchmarks.pages import check_page, run_main
from benchmarks.runs import Run, finetuned_runs, published, read_object, run_chains
from lightbert.analysis.figure import new_figure, write
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.train.signals import EXIT_CODE, catch_signals

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
_LENGTH = 128
"""The tokens per text of all recipes of these tables, unless it is overridden."""
_LEAST_GAIN = 0.01
"""A row whose held-out accuracy is less above that of trivial predictions is still on the plateau of the start."""
_MOST_FREQUENT = 0.15
"""About the accuracy of masked-language models before they use the context."""


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

    def size(self, protocol: Protocol) -> tuple[int, int]:
        """The steps and the batch of the row."""
        return int(protocol.steps / self.batch_factor), int(protocol.batch * self.batch_factor)

    def changes(self, protocol: Protocol) -> tuple[str, ...]:
        """What the row changes, as words of its command."""
        steps, batch = self.size(protocol)
        return (*self.overrides, *((f"steps={steps}", f"batch={batch}") if self.batch_factor != 1 else ()))

    def runs(self, seed: int, protocol: Protocol) -> list[Run]:
        """The pre-training, and the fine-tuning on all tasks with each seed; the encoder keeps its dropout.

        Rows that several tables share are trained once.
        """
        folder, (steps, batch) = protocol.out / f"{self.name}-{seed}", self.size(protocol)
        own = (f"steps={steps}", f"batch={batch}", f"seed={seed}", f"data={protocol.data}")
        keys = (*PROTOCOL, *self.overrides, *own, *protocol.overrides, f"out={folder}")
        runs = [Run(["lightbert", "pretrain", self.recipe, *keys], folder)]
        for task_seed in protocol.task_seeds:
            chosen = (f"tasks=[{','.join(protocol.tasks)}]", f"seeds=[{task_seed}]", f"data={protocol.glue}")
            keys = (f"model={folder / 'final'}", *chosen, "head.dropout=0.0", *protocol.finetuning)
            command = ["lightbert", "finetune", _FINETUNING, *keys, f"out={folder / 'tasks' / str(task_seed)}"]
            runs.append(Run(command, Path(f"{folder}-{task_seed}")))
        return runs


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

    def choose(self, names: str | None) -> "Table":
        """The table with only the rows of these names, separated by commas; None: all."""
        if names is None:
            return self
        known = [arm.name for arm in self.arms]
        for name in names.split(","):
            if name not in known:
                raise InputError(f"--rows must name rows of the table, got '{name}'; its rows are {', '.join(known)}")
        return replace(self, arms=tuple(arm for arm in self.arms if arm.name in names.split(",")))

    def check(self, protocol: Protocol) -> None:
        """Check that all rows read the same number of tokens, and that no key for all rows undoes the change of one."""
        given = {word.partition("=")[0] for word in protocol.overrides}
        for arm in self.arms:
            steps, batch = arm.size(protocol)
            if steps * batch != protocol.steps * protocol.batch:
                raise InputError(
                    f"--steps and --batch must be even for the row '{arm.name}', got {protocol.steps} and "
                    f"{protocol.batch}; change them, or choose other rows with --rows"
                )
            for key in given & {word.partition("=")[0] for word in arm.changes(protocol)}:
                raise InputError(
                    f"{key} can't be set for all rows, because the row '{arm.name}' changes it; remove it from the "
                    "command, or choose other rows with --rows"
                )


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
        return fmean(100 * median(scores) for scores in self.scores.values())

    @property
    def is_on_plateau(self) -> bool:
        """Whether the model knows little more than the frequencies of tokens: "original" everywhere, or one word."""
        if "rtd_accuracy" in self.held_out:
            return self.held_out["rtd_accuracy"] - (1 - self.held_out["replaced"]) < _LEAST_GAIN
        return self.held_out.get("mlm_accuracy", 1.0) - _MOST_FREQUENT < _LEAST_GAIN


def run_table(table: Table, protocol: Protocol, jobs: int, is_over: Callable[[], bool]) -> list[Outcome]:
    """Pre-train and fine-tune all rows, as many at once as there are jobs; return those that are finished."""
    rows = {(arm, seed): arm.runs(seed, protocol) for seed in protocol.seeds for arm in table.arms}
    run_chains(rows.values(), jobs, is_over)
    for (arm, seed), runs in rows.items():
        if unfinished := [run.path.name for run in runs if not run.commit]:
            print(f"{arm.label}, seed {seed}: {', '.join(unfinished)} not finished", file=sys.stderr)
    finished = [row for row, runs in rows.items() if all(run.commit for run in runs)]
    return [_outcome(arm, seed, protocol) for arm, seed in finished]


def _outcome(arm: Arm, seed: int, protocol: Protocol) -> Outcome:
    runs = arm.runs(seed, protocol)
    folder = runs[0].path
    scores = {(run.task, run.seed): run.score for run in finetuned_runs([folder / "tasks"])}
    missing = {(task, task_seed) for task in protocol.tasks for task_seed in protocol.task_seeds} - scores.keys()
    if missing:
        raise InputError(f"'{folder}' lacks the results of {sorted(missing)}; remove it and its records to start again")
    by_task = {task: tuple(scores[task, task_seed] for task_seed in protocol.task_seeds) for task in protocol.tasks}
    return Outcome(arm, seed, dict(read_object(folder / "result.json")["held_out"]), by_task, runs[0].commit)


_DIFFERENCE = (
    "Tokens are counted in the same way for all rows, as steps × batch × length with padding: a row with another batch "
    "has as many tokens in more or fewer steps, and packed rows have more text in place of padding. "
    "Held-out losses depend on generator, masks and examples: compare rows by the tasks. "
    "The last column is the difference of the mean from that of the row without changes and with the same seed."
)
"""About tables that are not from a paper."""


def markdown(name: str, table: Table, protocol: Protocol, outcomes: list[Outcome], picture: str, note: str = "") -> str:
    """The page of a table: one line per row and seed, the order of the rows, and the commands of each."""
    losses = sorted({key for outcome in outcomes for key in outcome.held_out if key.endswith("_loss")})
    tasks, last = list(protocol.tasks), "paper" if table.figures else "difference"
    # The last value counts, as on the command line.
    lengths = [word.removeprefix("length=") for word in protocol.overrides if word.startswith("length=")]
    length = int(lengths[-1]) if lengths else _LENGTH
    tokens = protocol.steps * protocol.batch * length / 1e6
    seeds = f"{len(protocol.task_seeds)} seed{'s' if len(protocol.task_seeds) > 1 else ''}"
    lines = [
        f"# {table.title}",
        "",
        f"Written by `python -m benchmarks.papers {name}`{note}. Every row is pre-trained on {tokens:,.1f} "
        f"million tokens ({protocol.steps:,} steps of {protocol.batch} × {length}) and fine-tuned with {seeds}. "
        "Scores are medians in points, with the lowest and the highest in brackets. "
        + (f"The last column is the paper's figure: {table.source}." if table.figures else _DIFFERENCE),
        "",
        f"![The mean of the tasks for each row]({picture})",
        "",
        f"| row | recipe | commit | seed | {' | '.join([*losses, *tasks, 'mean', last])} |",
        "| --- | --- | --- | ---: |" + " ---: |" * (len(losses) + len(tasks) + 2),
    ]
    for outcome in outcomes:
        cells = [f"{outcome.held_out[key]:.4f}" if key in outcome.held_out else "" for key in losses]
        cells += [_spread(outcome.scores[task]) for task in tasks]
        recipe = " ".join([outcome.arm.recipe, *outcome.arm.changes(protocol)])
        own = [outcome.arm.label, f"`{recipe}`", outcome.commit, str(outcome.seed)]
        lines.append(f"| {' | '.join([*own, *cells, f'{outcome.mean:.1f}', _comparison(outcome, outcomes)])} |")
    lines += ["", _order(table, outcomes), *_notes(table, protocol, outcomes), "", "## Commands", "```"]
    for outcome in outcomes:
        lines.append(f"# {outcome.arm.label}, seed {outcome.seed}, at commit {outcome.commit}")
        lines += [published(run.command) for run in outcome.arm.runs(outcome.seed, protocol)]
    return "\n".join([*lines, "```", ""])


def _notes(table: Table, protocol: Protocol, outcomes: list[Outcome]) -> list[str]:
    """Sentences about rows on the plateau and about rows without results, if there are any."""
    finished = {(outcome.arm.label, outcome.seed) for outcome in outcomes}
    missing = [(arm.label, seed) for seed in protocol.seeds for arm in table.arms if (arm.label, seed) not in finished]
    stuck = [(outcome.arm.label, outcome.seed) for outcome in outcomes if outcome.is_on_plateau]
    notes = []
    if stuck:
        notes = [
            f"On the plateau at the start of training: {_names(stuck)}. The held-out accuracy is less than "
            f"{100 * _LEAST_GAIN:.0f} point above trivial predictions. Train longer, or at another rate, to compare."
        ]
    notes += [f"Not finished: {_names(missing)}."] if missing else []
    return [line for note in notes for line in ("", note)]


def _names(rows: list[tuple[str, int]]) -> str:
    return ", ".join(f"{label} (seed {seed})" for label, seed in rows)


def _comparison(outcome: Outcome, outcomes: list[Outcome]) -> str:
    """The paper's figure, or the difference from the row without changes; "" if there is neither."""
    if outcome.arm.paper is not None:
        return f"{outcome.arm.paper:.1f}"
    plain = [each.mean for each in outcomes if each.arm.name == each.arm.recipe and each.seed == outcome.seed]
    return f"{outcome.mean - plain[0]:+.1f}" if plain and outcome.arm.name != outcome.arm.recipe else ""


def _spread(scores: tuple[float, ...]) -> str:
    low, high = 100 * min(scores), 100 * max(scores)
    return f"{100 * median(scores):.1f} ({low:.1f}–{high:.1f})" if len(scores) > 1 else f"{low:.1f}"


def _order(table: Table, outcomes: list[Outcome]) -> str:
    """Rows from worst to best, by the mean over seeds, next to the paper's order of the same rows if there is one."""
    labels = dict.fromkeys(outcome.arm.label for outcome in outcomes)
    means = {label: fmean(each.mean for each in outcomes if each.arm.label == label) for label in labels}
    ours = sorted(means, key=means.__getitem__)
    order = f"From lowest to highest here: {', '.join(ours)}."
    if not table.figures:
        return order
    reported = [label for label in sorted(table.figures, key=table.figures.__getitem__) if label in means]
    same = "The paper has the same order." if ours == reported else f"In the paper: {', '.join(reported)}."
    return f"{order} {same}"


def draw(table: Table, outcomes: list[Outcome], picture: Path) -> None:
    """A dot for each row and seed, beside the paper's figures if there are any."""
    labels = [arm.label for arm in table.arms]
    figure = new_figure(7, 0.5 * len(labels) + 1.2)
    ours, *paper = figure.subplots(1, 2 if table.figures else 1, sharey=True, squeeze=False)[0]
    for outcome in outcomes:
        ours.plot(outcome.mean, labels.index(outcome.arm.label), "o", color="tab:blue")
    ours.set_yticks(range(len(labels)), labels)
    ours.invert_yaxis()
    ours.set_xlabel("mean of the tasks, here")
    for axes in paper:
        axes.plot(list(table.figures.values()), range(len(labels)), "s", color="tab:orange")
        axes.set_xlabel(table.source)
    for axes in (ours, *paper):
        axes.grid(axis="x", alpha=0.3)
    write(figure, picture)


def main(arguments: list[str] | None = None) -> None:
    """Run one table."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.papers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--data", type=Path, required=True, help="a prepared folder")
    parser.add_argument("--glue", type=Path, required=True, help="the folder of the GLUE tasks")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs and of the page")
    parser.add_argument(
        "--rows", help="only the rows with these names, the recipe and what the row changes in it; separated by commas"
    )
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=1, help="the number of pre-training seeds")
    parser.add_argument("--tasks", default="cola,mrpc,stsb")
    parser.add_argument("--task-seeds", type=int, default=3, help="the number of fine-tuning seeds")
    parser.add_argument("--jobs", type=int, default=1, help="rows at once, each with one process")
    parser.add_argument("--minutes", type=float, default=0.0, help="then all processes save and stop; 0: no limit")
    parser.add_argument(
        "--finetuning", action="append", default=[], help="a key=value pair for fine-tuning; repeatable"
    )
    parser.add_argument("--page", type=Path, help="the page to write, by default OUT/TABLE.md")
    parser.add_argument("--note", default="", help="added to the first sentence, such as the machine and the commit")
    parser.add_argument("overrides", nargs="*", help="more key=value pairs for pre-training")
    chosen = parser.parse_intermixed_args(arguments)
    protocol = Protocol(
        chosen.data,
        chosen.glue,
        chosen.out,
        steps=chosen.steps,
        batch=chosen.batch,
        seeds=tuple(range(chosen.seeds)),
        tasks=tuple(chosen.tasks.split(",")),
        task_seeds=tuple(range(chosen.task_seeds)),
        overrides=tuple(chosen.overrides),
        finetuning=tuple(chosen.finetuning),
    )
    if chosen.jobs < 1:
        raise InputError(f"--jobs must be >= 1, got {chosen.jobs}")
    for option, folder in (("--data", protocol.data), ("--glue", protocol.glue)):
        if not folder.is_dir():
            raise InputError(f"{option} must be a folder, got '{folder}'")
    if chosen.page is not None:
        check_page("--page", chosen.page)
    table = TABLES[chosen.table].choose(chosen.rows)
    table.check(protocol)
    deadline = time.monotonic() + 60 * chosen.minutes if chosen.minutes else float("inf")
    with catch_signals() as interrupted, interrupted.deferred():
        outcomes = run_table(table, protocol, chosen.jobs, lambda: bool(interrupted) or time.monotonic() > deadline)
    wanted = len(table.arms) * len(protocol.seeds)
    if outcomes:
        page = chosen.page or protocol.out / f"{chosen.table}.md"
        note = f" {chosen.note}" if chosen.note else ""
        write_atomic(page, markdown(chosen.table, table, protocol, outcomes, page.with_suffix(".svg").name, note))
        draw(table, outcomes, page.with_suffix(".svg"))
        print(f"wrote {page}: {len(outcomes)} of {wanted} rows")
    if len(outcomes) < wanted:
        print(
            f"{wanted - len(outcomes)} of {wanted} rows are not finished; run the same command again to continue; the "
            f"logs are in '{protocol.out}'",
            file=sys.stderr,
        )
        sys.exit(EXIT_CODE)


if __name__ == "__main__":
    run_main(main)
