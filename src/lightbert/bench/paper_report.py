"""The page and the picture of a paper's table, from the results of its rows."""

import shlex
from pathlib import Path
from statistics import median

from lightbert.analysis.picture import new_figure, write
from lightbert.bench.paper_runs import Outcome, Protocol, finetuning_command, pretraining_command
from lightbert.bench.paper_tables import Table

_LENGTH = 128
"""The tokens per text of all recipes of these tables."""


def markdown(name: str, table: Table, protocol: Protocol, outcomes: list[Outcome], note: str = "") -> str:
    """The page of a table: one line per row and seed, the order of the rows, and the commands of each."""
    losses = sorted({key for outcome in outcomes for key in outcome.held_out if key.endswith("_loss")})
    tasks = list(protocol.tasks)
    tokens = protocol.steps * protocol.batch * _LENGTH / 1e6
    lines = [
        f"# {table.title}",
        "",
        f"Written by `python -m lightbert.bench.papers {name}`{note}. Every row is pre-trained on {tokens:,.1f} "
        f"million tokens ({protocol.steps:,} steps of {protocol.batch} × {_LENGTH}) and fine-tuned with "
        f"{len(protocol.task_seeds)} seeds. Scores are medians in points, with the lowest and the highest in brackets. "
        f"The last column is the paper's figure: {table.source}.",
        "",
        f"![The mean of the tasks for each row]({name}.svg)",
        "",
        f"| row | seed | {' | '.join([*losses, *tasks, 'mean', 'paper'])} |",
        "| --- | ---: |" + " ---: |" * (len(losses) + len(tasks) + 2),
    ]
    for outcome in outcomes:
        cells = [f"{outcome.held_out[key]:.4f}" if key in outcome.held_out else "" for key in losses]
        cells += [_spread(outcome.scores[task]) for task in tasks]
        row = [outcome.arm.label, str(outcome.seed), *cells, f"{outcome.mean:.1f}", f"{outcome.arm.paper:.1f}"]
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", _order(table, outcomes), "", "## Commands", "```"]
    for outcome in outcomes:
        lines.append(shlex.join(pretraining_command(outcome.arm, outcome.seed, protocol)))
        lines.append(shlex.join(finetuning_command(outcome.arm, outcome.seed, table, protocol)))
    return "\n".join([*lines, "```", ""])


def _spread(scores: tuple[float, ...]) -> str:
    low, high = 100 * min(scores), 100 * max(scores)
    return f"{100 * median(scores):.1f} ({low:.1f}–{high:.1f})" if len(scores) > 1 else f"{low:.1f}"


def _order(table: Table, outcomes: list[Outcome]) -> str:
    """The rows from worst to best, by the mean over seeds, next to the paper's order of the same rows."""
    means: dict[str, list[float]] = {}
    for outcome in outcomes:
        means.setdefault(outcome.arm.label, []).append(outcome.mean)
    ours = sorted(means, key=lambda label: sum(means[label]) / len(means[label]))
    theirs = [arm.label for arm in sorted(table.arms, key=lambda arm: arm.paper) if arm.label in means]
    order = f"From lowest to highest here: {', '.join(ours)}. "
    return order + ("The paper has the same order." if ours == theirs else f"In the paper: {', '.join(theirs)}.")


def draw(table: Table, outcomes: list[Outcome], picture: Path) -> None:
    """A dot for each row and seed, beside a bar for the paper's figure."""
    labels = [arm.label for arm in table.arms]
    figure = new_figure(7, 0.5 * len(labels) + 1.2)
    ours, theirs = figure.subplots(1, 2, sharey=True)
    for outcome in outcomes:
        ours.plot(outcome.mean, labels.index(outcome.arm.label), "o", color="tab:blue")
    theirs.plot([arm.paper for arm in table.arms], range(len(labels)), "s", color="tab:orange")
    ours.set_yticks(range(len(labels)), labels)
    ours.invert_yaxis()
    ours.set_xlabel("mean of the tasks, here")
    theirs.set_xlabel(table.source)
    for axes in (ours, theirs):
        axes.grid(axis="x", alpha=0.3)
    write(figure, picture)
