"""What a small encoder is worth, as a page: `python -m benchmarks.small_encoder`.

Records the results of finished runs in docs/results/small-encoder.json, and writes the page and its picture from them:

    … pretraining NAME RUN --machine "one H200" [--after NAME | --teacher NAME] [--minutes 13]
    … scores NAME RUNS … --of PRETRAINING --machine "one H200"
    … page
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.encoder_records import (
    TASKS,
    Origin,
    Pretraining,
    Records,
    Scores,
    TaskScores,
    load,
    read_distillation,
    read_pretraining,
    read_scores,
    save,
)
from benchmarks.pages import commit, run_main
from lightbert.analysis.figure import new_figure, write
from lightbert.files import write_atomic

PAGE = Path("docs/results/small-encoder.md")
QUOTED = Path("lab/small-encoder.toml")
COMMAND = "python -m benchmarks.small_encoder page"


SQUAD = "squad"


def markdown(records: Records, picture: str, command: str) -> str:
    """The page of some records."""
    tables = (_scores(records), _pretrainings(records), _curve(picture), _origins(records))
    return "\n".join(line for part in (_introduction(command), *tables) for line in part)


def _introduction(command: str) -> Iterator[str]:
    yield "# A small English encoder"
    yield ""
    yield (
        f"Written by `{command}` from `small-encoder.json`, which has the results of finished runs; don't edit. Rows "
        "with an asterisk are quoted: their run folders no longer exist."
    )
    yield ""


def _scores(records: Records) -> Iterator[str]:
    yield "## Scores"
    yield (
        "Medians over fine-tuning seeds on the development sets, in points, with the lowest and the highest: Matthews "
        "correlation for CoLA, Spearman's for STS-B, F1 for SQuAD 1.1, otherwise accuracy. Tokens are those of the "
        "whole pre-training, padding included."
    )
    for run in records.pretrainings:
        if run.teacher:
            yield f"`{run.name}` is a student of `{run.teacher}`: its tokens are those of its distillation."
    yield ""
    yield f"| model | tokens | {' | '.join(TASKS.values())} | mean | seeds | SQuAD |"
    yield "| --- | ---: |" + " ---: |" * (len(TASKS) + 3)
    for target in TARGETS:
        cells = [f"{score:.1f}" for score in (*(target.scores[task] for task in TASKS), target.mean)]
        yield f"| {target.label} (paper) | 16 billion | {' | '.join(cells)} | | {target.squad:.1f} |"
    for each in records.scores:
        *cells, squad = [_spread(each.tasks.get(task)) for task in (*TASKS, SQUAD)]
        mean = "" if each.mean is None else f"{each.mean:.1f}"
        row = [_label(each), _billions(records.tokens(each.of)), *cells, mean, _seeds(each), squad]
        yield f"| {' | '.join(row)} |"
    yield ""


def _pretrainings(records: Records) -> Iterator[str]:
    yield "## Pre-training"
    yield (
        "Training FLOPs in two conventions: by ELECTRA's script, which counts every operation and lookups as products "
        "with one-hot rows, and a backward pass as one forward pass; and by matrix products and convolutions only, a "
        "backward pass as two. Minutes are those of training steps, without the start."
    )
    yield ""
    titles = ["run", "continues", "recipe", "machine", "tokens", "minutes"]
    titles += ["FLOPs, ELECTRA", "FLOPs, matmul", "held-out RTD loss", "MLM loss"]
    yield f"| {' | '.join(titles)} |"
    yield "| --- | --- | --- | --- |" + " ---: |" * 6
    for each in _sorted(records):
        losses = [f"{each.held_out[key]:.4f}" if key in each.held_out else "" for key in ("rtd_loss", "mlm_loss")]
        cost = [f"{value:.2e}" if value else "" for value in (each.flops_electra, each.flops_matmul)]
        before = f"student of {each.teacher}" if each.teacher else each.after
        row = [_label(each), before, each.recipe, each.machine, _billions(each.tokens), f"{each.minutes:.0f}"]
        yield f"| {' | '.join([*row, *cost, *losses])} |"
    yield ""


def _curve(picture: str) -> Iterator[str]:
    yield "## Learning curve"
    yield f"![The mean of the five tasks over the tokens of pre-training]({picture})"
    yield ""
    yield (
        "The points are models of one line of training, but not of one text, vocabulary and schedule: no gain per "
        "token follows from them."
    )
    yield ""


def _origins(records: Records) -> Iterator[str]:
    yield "## Where the figures come from"
    yield "| row | recipe | commit | machine | source |"
    yield "| --- | --- | --- | --- | --- |"
    shown: list[Pretraining | Scores] = [*_sorted(records), *records.scores]
    for each in shown:
        kind = "pre-training" if isinstance(each, Pretraining) else "scores"
        row = [f"{kind}: {each.name}", each.recipe, each.commit, each.machine, each.source or "run folders"]
        yield f"| {' | '.join(row)} |"
    yield ""
    yield "```"
    for run in _sorted(records):
        yield from (f"# pre-training: {run.name}", run.command)
    for scores in records.scores:
        yield from (f"# scores: {scores.name}", *scores.commands)
    yield "```"
    yield ""


def _sorted(records: Records) -> list[Pretraining]:
    return sorted(records.pretrainings, key=lambda each: records.tokens(each.name))


def _label(record: Pretraining | Scores) -> str:
    return f"{record.name}{' *' if record.source else ''}"


def _seeds(scores: Scores) -> str:
    counts = sorted({len(each.values) for each in scores.tasks.values()})
    return f"{counts[0]}–{counts[-1]}" if len(counts) > 1 else str(counts[0])


def _spread(scores: TaskScores | None) -> str:
    if scores is None:
        return ""
    low, high = 100 * min(scores.values), 100 * max(scores.values)
    spread = f" ({low:.1f}–{high:.1f})" if len(scores.values) > 1 else ""
    return f"{100 * scores.median:.1f}{spread}"


def _billions(tokens: float) -> str:
    return f"{tokens / 1e9:.2f} billion"


def draw(records: Records, picture: Path) -> None:
    """The mean score of each model over its tokens, and the published means as horizontal lines."""
    known = points(records)
    figure = new_figure(7, 4)
    axes = figure.subplots()
    for quoted, style, label in ((False, "o", "measured"), (True, "x", "quoted")):
        chosen = [point for point in known if point.quoted == quoted]
        if chosen:
            axes.plot([p.tokens / 1e9 for p in chosen], [p.mean for p in chosen], style, color="tab:blue", label=label)
        for point in chosen:
            place = (point.tokens / 1e9, point.mean)
            axes.annotate(point.name, place, xytext=(6, -10), textcoords="offset points", fontsize=8)
    for target, colour in zip(TARGETS, ("tab:orange", "tab:green"), strict=True):
        axes.axhline(target.mean, color=colour, linewidth=1, label=f"{target.label}: {target.mean:.1f}")
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.5, 20)
    axes.set_xticks([0.5, 1, 2, 4, 8, 16], ["0.5", "1", "2", "4", "8", "16"])
    axes.set_xlabel("billion tokens of pre-training")
    axes.set_ylabel("mean of the five tasks")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    write(figure, picture)


@dataclass(frozen=True)
class Target:
    """The published scores of a model on the five tasks, in points."""

    label: str
    scores: dict[str, float]
    squad: float
    """F1 on SQuAD 1.1's development set."""

    @property
    def mean(self) -> float:
        """The mean of the tasks."""
        return fmean(self.scores.values())


TARGETS = (
    Target("ELECTRA-Small, dev", {"cola": 56.8, "sst2": 88.3, "mrpc": 87.4, "stsb": 86.8, "rte": 68.5}, 73.8),
    Target("ConvBERT-small, dev", {"cola": 59.7, "sst2": 90.1, "mrpc": 86.8, "stsb": 87.7, "rte": 67.1}, 84.1),
)
"""ConvBERT Table 2, SQuAD from Table 4; 1 M updates of 128 × 128 tokens each."""


@dataclass(frozen=True)
class Point:
    """A model on the curve."""

    name: str
    tokens: int
    mean: float
    quoted: bool


def points(records: Records) -> list[Point]:
    """The models with scores for all five tasks, by their tokens; without students, which are smaller."""
    found = [
        Point(each.name, records.tokens(each.of), mean, bool(each.source))
        for each in records.scores
        if (mean := each.mean) is not None and not records.is_student(each.of)
    ]
    return sorted(found, key=lambda point: point.tokens)


def main(arguments: list[str] | None = None) -> None:
    """Record a result if one is given, and write the page."""
    chosen = _parser().parse_args(arguments)
    path, quoted = chosen.page.with_suffix(".json"), load(chosen.quoted)
    records = load(path)
    if chosen.action != "page":
        origin = Origin(chosen.name, chosen.commit or commit(), chosen.machine)
        if chosen.action == "scores":
            records = records.add(read_scores(chosen.runs, origin, of=chosen.of))
        elif chosen.teacher:
            student = read_distillation(chosen.run, origin, teacher=chosen.teacher, minutes=chosen.minutes)
            records = records.add(student)
        else:
            records = records.add(read_pretraining(chosen.run, origin, after=chosen.after, minutes=chosen.minutes))
    shown = records.with_quoted(quoted).check()
    if chosen.action != "page":
        save(records, path)
    picture = chosen.page.with_suffix(".svg")
    write_atomic(chosen.page, markdown(shown, picture.name, COMMAND))
    draw(shown, picture)
    print(f"wrote {chosen.page}: {len(shown.pretrainings)} pre-trainings, {len(shown.scores)} rows of scores")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks.small_encoder",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--page", type=Path, default=PAGE, help="the page; its records are the .json file next to it")
    shared.add_argument("--quoted", type=Path, default=QUOTED, help="records whose runs no longer exist, as TOML")
    origin = argparse.ArgumentParser(add_help=False)
    origin.add_argument("name", help="the name of the row; a row of the same name is replaced")
    origin.add_argument("--machine", required=True, help="what the run ran on")
    origin.add_argument("--commit", default="", help="the commit that the run ran at; by default the current one")
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("pretraining", parents=[origin, shared], help="record a pre-training or a distillation")
    run.add_argument("run", type=Path, help="a run folder, or a model folder with the card of its run")
    before = run.add_mutually_exclusive_group()
    before.add_argument("--after", default="", help="the name of the pre-training that this one continues")
    before.add_argument("--teacher", default="", help="for a distillation, the name of its teacher's pre-training")
    run.add_argument("--minutes", type=float, default=0.0, help="by default, tokens by the speed in result.json")
    runs = actions.add_parser("scores", parents=[origin, shared], help="record the scores of fine-tunings")
    runs.add_argument("runs", type=Path, nargs="+", help="run folders, or folders of runs, of one recipe")
    runs.add_argument("--of", required=True, help="the name of the pre-training of their model")
    actions.add_parser("page", parents=[shared], help="write the page again")
    return parser


if __name__ == "__main__":
    run_main(main)
