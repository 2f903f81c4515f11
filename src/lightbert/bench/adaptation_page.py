"""The page of the adaptation: held-out losses and the accuracy on a task, before and after, with the commands."""

import math
from collections.abc import Iterator

from lightbert.bench.adaptation_runs import (
    ADAPTED,
    BUNDLED,
    MODEL,
    Outcome,
    Protocol,
    finetuning_runs,
    mean_and_error,
    pretraining_runs,
)
from lightbert.bench.row_runs import published
from lightbert.bench.section_task import PACKAGES, SectionTask

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
