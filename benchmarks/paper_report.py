"""The page and the picture of a table, from the results of its rows."""

from pathlib import Path
from statistics import median

from benchmarks.commands import published
from benchmarks.paper_runs import (
    LEAST_GAIN,
    Outcome,
    Protocol,
    Table,
    finetuning_command,
    is_on_plateau,
    pretraining_command,
    settings_of,
)
from lightbert.analysis.figure import new_figure, write

_LENGTH = 128
"""The tokens per text of all recipes of these tables, unless it is overridden."""
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
        recipe = " ".join([outcome.arm.recipe, *settings_of(outcome.arm, protocol)])
        own = [outcome.arm.label, f"`{recipe}`", outcome.commit, str(outcome.seed)]
        lines.append(f"| {' | '.join([*own, *cells, f'{outcome.mean:.1f}', _comparison(outcome, outcomes)])} |")
    notes = [*_plateaus(outcomes), *_unfinished(table, protocol, outcomes)]
    lines += ["", _order(table, outcomes), *notes, "", "## Commands", "```"]
    for outcome in outcomes:
        lines.append(f"# {outcome.arm.label}, seed {outcome.seed}, at commit {outcome.commit}")
        lines.append(published(pretraining_command(outcome.arm, outcome.seed, protocol)))
        for task_seed in protocol.task_seeds:
            lines.append(published(finetuning_command(outcome.arm, outcome.seed, task_seed, protocol)))
    return "\n".join([*lines, "```", ""])


def _plateaus(outcomes: list[Outcome]) -> list[str]:
    """A sentence about rows that have learned little more than the frequencies of tokens, if there are any."""
    names = [f"{each.arm.label} (seed {each.seed})" for each in outcomes if is_on_plateau(each.held_out)]
    if not names:
        return []
    what = "has" if len(names) == 1 else "have"
    return [
        "",
        f"{', '.join(names)} {what} hardly left the plateau at the start of training: the held-out accuracy is less "
        f"than {100 * LEAST_GAIN:.0f} point above trivial predictions. Train longer, or at another rate, to compare.",
    ]


def _unfinished(table: Table, protocol: Protocol, outcomes: list[Outcome]) -> list[str]:
    """A sentence about rows of the table without results, if there are any."""
    found = {(outcome.arm.label, outcome.seed) for outcome in outcomes}
    wanted = [(arm.label, seed) for seed in protocol.seeds for arm in table.arms]
    names = [f"{label} (seed {seed})" for label, seed in wanted if (label, seed) not in found]
    return ["", f"Not finished: {', '.join(names)}."] if names else []


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
    means: dict[str, list[float]] = {}
    for outcome in outcomes:
        means.setdefault(outcome.arm.label, []).append(outcome.mean)
    ours = sorted(means, key=lambda label: sum(means[label]) / len(means[label]))
    order = f"From lowest to highest here: {', '.join(ours)}."
    if not table.figures:
        return order
    theirs = [label for label in sorted(table.figures, key=table.figures.__getitem__) if label in means]
    return f"{order} " + ("The paper has the same order." if ours == theirs else f"In the paper: {', '.join(theirs)}.")


def draw(table: Table, outcomes: list[Outcome], picture: Path) -> None:
    """A dot for each row and seed, beside the paper's figures if there are any."""
    labels = [arm.label for arm in table.arms]
    figure = new_figure(7, 0.5 * len(labels) + 1.2)
    ours, *theirs = figure.subplots(1, 2 if table.figures else 1, sharey=True, squeeze=False)[0]
    for outcome in outcomes:
        ours.plot(outcome.mean, labels.index(outcome.arm.label), "o", color="tab:blue")
    ours.set_yticks(range(len(labels)), labels)
    ours.invert_yaxis()
    ours.set_xlabel("mean of the tasks, here")
    for axes in theirs:
        axes.plot(list(table.figures.values()), range(len(labels)), "s", color="tab:orange")
        axes.set_xlabel(table.source)
    for axes in (ours, *theirs):
        axes.grid(axis="x", alpha=0.3)
    write(figure, picture)
