"""What adapting the bundled model to a domain gains: `python -m benchmarks.adaptation --out …`.

Reads docstrings of installed packages as a task and as text, continues the pre-training of the bundled model on the
text with the recipe `adapt`, fine-tunes both weights on the task with several seeds, and writes a page. The exit code
is 75 after SIGTERM or SIGINT; the same command continues.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.adaptation_runs import (
    ADAPTED,
    BUNDLED,
    FINETUNING,
    MODEL,
    PACKAGES,
    Outcome,
    Protocol,
    SectionTask,
    commits,
    finetuning_runs,
    mean_and_error,
    pretraining_runs,
    read_task,
    run_all,
    simple_classifiers,
)
from benchmarks.commands import published
from benchmarks.latency_files import versions
from benchmarks.pages import check_page, run_main
from lightbert.config import assignments, from_mapping, override
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.recipes import read
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.train.settings import BaseRecipe, Recipe
from lightbert.train.signals import EXIT_CODE, catch_signals

_PROGRAM = "benchmarks.adaptation"
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
"""Packages that are installed under another name."""


def _check_keys(cls: type[BaseRecipe], recipe: str, words: list[str]) -> None:
    """Check the keys of commands that run minutes or hours later."""
    from_mapping(cls, override(read(recipe), assignments([f"model={MODEL}", *words, "out=DIR"])))


_ROWS = {BUNDLED: "as bundled", ADAPTED: "adapted"}
_LOSSES = {"mlm_loss": "MLM loss (generator)", "rtd_loss": "RTD loss", "rtd_accuracy": "RTD accuracy"}
_CLEAR = 2.0
"""The standard errors that a clear difference is away from zero."""


def markdown(
    task: SectionTask, protocol: Protocol, outcome: Outcome, baselines: dict[str, float], *, command: str, origin: str
) -> str:
    """The page. command: what wrote it; origin: the commits, the versions of the packages and the machine."""
    parts = (
        _introduction(task, command, origin),
        _losses(protocol, outcome),
        _accuracy(task, protocol, outcome, baselines),
    )
    return "\n".join(line for part in (*parts, _commands(protocol)) for line in part)


def _introduction(task: SectionTask, command: str, origin: str) -> Iterator[str]:
    sizes = {split: len(rows) for split, rows in task.examples.items()}
    sections = sorted({section for _, section in task.examples["train"]})
    yield "# What adapting the bundled model gains"
    yield ""
    yield f"Written by `{command}`; don't edit. {origin}"
    yield ""
    yield (
        f"The recipe [`adapt`](../pretraining.md#adapting-the-bundled-model) continues the pre-training of `{MODEL}` "
        f"on docstrings of {', '.join(PACKAGES)} ({len(task.documents):,} functions and classes). The task is to tell "
        f"which section of a docstring a sentence is from: {', '.join(sections)}; headings, and the names and types "
        f"of parameters, are removed. {sizes['train']:,} labelled sentences are for training, {sizes['dev']:,} for the "
        f"choice of the epoch, {sizes['test']:,} for the test. A function or class is in one of these parts or in the "
        "text of the adaptation, and so is each of the sentences."
    )
    yield ""


def _losses(protocol: Protocol, outcome: Outcome) -> Iterator[str]:
    yield "## Held-out text"
    keys = f", with `{published(list(protocol.adaptation))}` instead of the recipe's values" * bool(protocol.adaptation)
    yield f"After {outcome.steps:,} steps{keys}; 4 % of the documents are held out."
    yield ""
    yield f"| weights | {' | '.join(_LOSSES.values())} |"
    yield "| --- |" + " ---: |" * len(_LOSSES)
    for weights, name in _ROWS.items():
        yield f"| {name} | {' | '.join(f'{outcome.held_out[weights][key]:.4f}' for key in _LOSSES)} |"
    yield ""


def _accuracy(task: SectionTask, protocol: Protocol, outcome: Outcome, baselines: dict[str, float]) -> Iterator[str]:
    yield "## The task"
    yield (
        "Accuracy in percent. Both weights are fine-tuned in the same way, with settings that were chosen on the dev "
        "split with the bundled weights. The last column is the mean with its standard error over the seeds."
    )
    yield ""
    yield f"| weights | split | {' | '.join(f'seed {seed}' for seed in protocol.seeds)} | mean |"
    yield "| --- | --- |" + " ---: |" * (len(protocol.seeds) + 1)
    for split, scores in (("dev", outcome.dev), ("test", outcome.test)):
        for weights, name in _ROWS.items():
            yield _row(name, split, scores[weights])
    yield _row("difference", "test", outcome.gains, "+")
    for name, accuracy in baselines.items():
        yield f"| {name} | test |{' |' * len(protocol.seeds)} {100 * accuracy:.1f} |"
    yield ""
    mean, of_seeds = mean_and_error(outcome.gains)
    error = math.hypot(of_seeds, outcome.sentence_error)
    verdict = "clear" if abs(mean) > _CLEAR * error else "not clear"
    yield (
        f"The adaptation changes the test accuracy by {100 * mean:+.1f} points. The standard error is "
        f"{100 * of_seeds:.1f} from the {len(outcome.gains)} seeds, {100 * outcome.sentence_error:.1f} from the "
        f"{len(task.examples['test']):,} sentences and {100 * error:.1f} from both: by two standard errors, the change "
        f"is {verdict}."
    )
    yield ""


def _row(name: str, split: str, values: tuple[float, ...], sign: str = "") -> str:
    mean, error = mean_and_error(values)
    cells = [f"{100 * value:{sign}.1f}" for value in values]
    return f"| {name} | {split} | {' | '.join(cells)} | {100 * mean:{sign}.1f} ± {100 * error:.1f} |"


def _commands(protocol: Protocol) -> Iterator[str]:
    first = protocol.seeds[0]
    runs = [*pretraining_runs(protocol), *(run for each in _ROWS for run in finetuning_runs(protocol, each, first))]
    yield "## Commands"
    yield f"For seed {first}; the others differ in the seed only. The first `pretrain` measures the losses before."
    yield ""
    yield "```"
    yield from (published(run.command) for run in runs)
    yield "```"
    yield ""


def main(arguments: list[str] | None = None) -> None:
    """Adapt, fine-tune, and write the page."""
    arguments = sys.argv[1:] if arguments is None else arguments
    chosen = _parser().parse_intermixed_args(arguments)
    if chosen.seeds < 1 or chosen.jobs < 1:
        raise InputError(f"--seeds and --jobs must be >= 1, got {chosen.seeds} and {chosen.jobs}")
    if chosen.page is not None:
        check_page("--page", chosen.page)
    _check_keys(Recipe, "adapt", [*chosen.overrides, "data=DIR"])
    _check_keys(FinetuneRecipe, "classify", [*chosen.finetuning, "data.train=FILE"])
    installed = versions(*(_DISTRIBUTIONS.get(package, package) for package in PACKAGES))
    if missing := [name for name, version in installed.items() if not version]:
        raise InputError(f"the task needs {', '.join(PACKAGES)}; install {' '.join(missing)}")
    protocol = Protocol(
        chosen.out,
        tuple(range(chosen.seeds)),
        chosen.jobs,
        adaptation=tuple(chosen.overrides),
        finetuning=(*FINETUNING, *chosen.finetuning),
    )
    task = read_task()
    with catch_signals() as interrupted, interrupted.deferred():
        outcome = run_all(task, protocol, lambda: bool(interrupted))
    if outcome is None:
        print(f"not finished; run the same command again to continue; the logs are in '{chosen.out}'", file=sys.stderr)
        sys.exit(EXIT_CODE if interrupted else 1)
    packages = ", ".join(f"{name} {version}" for name, version in installed.items())
    origin = f"Commits {', '.join(commits(protocol))}; {packages}{f'; {chosen.note}' if chosen.note else ''}."
    page = chosen.page or chosen.out / "adapt.md"
    command = published(["python", "-m", _PROGRAM, *arguments])
    write_atomic(page, markdown(task, protocol, outcome, simple_classifiers(task), command=command, origin=origin))
    print(f"wrote {page}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs")
    parser.add_argument("--page", type=Path, help="the page to write, by default OUT/adapt.md")
    parser.add_argument("--seeds", type=int, default=5, help="the number of fine-tuning seeds")
    parser.add_argument("--jobs", type=int, default=2, help="fine-tunings at once, in processes of one thread")
    parser.add_argument(
        "--finetuning", action="append", default=[], help="a key=value pair for fine-tuning; repeatable"
    )
    parser.add_argument("--note", default="", help="added to the first sentence, such as the machine")
    parser.add_argument("overrides", nargs="*", help="key=value pairs for the adaptation, such as max_minutes=60")
    return parser


if __name__ == "__main__":
    run_main(main)
