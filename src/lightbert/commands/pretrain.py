"""`lightbert pretrain` and `lightbert distill`: training from a recipe."""

import json as json_format
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.options import check_corpus
from lightbert.commands.recipes import command_words, read_recipe, recipe_class
from lightbert.commands.report import AsJson, Report, Table, show
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.processes import set_threads

if TYPE_CHECKING:
    from lightbert.tasks.finetune.plan import Plan
    from lightbert.train.distributed import World
    from lightbert.train.settings import DistillRecipe, Recipe
    from lightbert.train.signals import Interruption
    from lightbert.train.step import Outcome

_NOT_HELD_OUT = "nothing to measure on; prepare more documents (--documents line), or a larger share (--held-out 0.05)"


@dataclass(frozen=True)
class TrainingReport:
    """The outcome of a run, and where its results are saved."""

    out: Path
    outcome: "Outcome"

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return self.outcome.finished

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        outcome = self.outcome
        return {
            "out": str(self.out),
            "model": str(self.out / "final") if outcome.finished else None,
            "step": outcome.step,
            "finished": outcome.finished,
            "tokens_per_second": outcome.tokens_per_second,
            "start_seconds": outcome.start_seconds,
            "metrics": outcome.held_out,
            "before": outcome.before,
            "passes": outcome.passes,
            "verdict": outcome.verdict,
        }

    def __rich__(self) -> str:
        outcome = self.outcome
        if not outcome.finished:
            return f"interrupted and saved at step {outcome.step:,}; run the same command again to resume"
        # Metrics of single layers, such as fmt_24, are only logged.
        shown = {name: value for name, value in outcome.held_out.items() if not name[-1].isdigit()}
        numbers = ", ".join(f"{name} {value:.4f}" for name, value in shown.items()) or _NOT_HELD_OUT
        # A resumed run may have had no step left to measure.
        speed = f" at {outcome.tokens_per_second:,.0f} tokens/s" if outcome.tokens_per_second else ""
        read = f", {outcome.passes:.2g} passes over the text" if outcome.passes else ""
        lines = [
            f"{outcome.step:,} steps{speed}{read}; held out: {numbers}",
            outcome.verdict,
            f"model: {self.out / 'final'}",
        ]
        return "\n".join(line for line in lines if line)


def summarize(plan: "Plan", reports: Sequence[TrainingReport]) -> Report:
    """Return the mean of the metrics over the seeds, with its standard error, for each setting of a grid."""
    out, finished = plan.out, reports[-1].finished
    groups: dict[str, list[Mapping[str, float]]] = {}
    for part, report in zip(plan.runs, reports, strict=False):
        if report.finished:
            groups.setdefault(part.settings, []).append(report.outcome.held_out)
    settings = {
        setting: {name: _statistics([run[name] for run in runs]) for name in runs[0]}
        for setting, runs in groups.items()
    }
    single = next(iter(settings.values())) if len(settings) == 1 else {}
    content = {
        "out": str(out),
        "finished": finished,
        "metrics": {name: values["mean"] for name, values in single.items()},
        "settings": settings,
        "runs": [report.to_json() for report in reports],
    }
    if not finished:
        return Report(content, [f"{len(reports) - 1} of {len(plan.runs)} runs finished; {reports[-1].__rich__()}"])
    names = [name for name in next(iter(settings.values())) if not name[-1].isdigit()]
    rows = [
        [setting or "-", *(f"{metrics[name]['mean']:.4f} ± {metrics[name]['error']:.4f}" for name in names)]
        for setting, metrics in settings.items()
    ]
    table = Table(["setting", *names], rows, caption="mean and standard error over the seeds")
    return Report(content, [table, f"runs: {out / 'runs'}"])


def _statistics(values: Sequence[float]) -> dict[str, float]:
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return {"runs": len(values), "mean": fmean(values), "error": error}


def run(recipe: "Recipe | DistillRecipe", command: Sequence[str] = ()) -> TrainingReport:
    """Pre-train or distil, or resume the training, and save the models after the last step.

    command: the words of the command, for the model card.
    """
    from lightbert.train.distributed import process_group
    from lightbert.train.signals import catch_signals

    with catch_signals() as interrupted, process_group(recipe.device) as world:
        return _run(recipe, world, interrupted, command)


def _run(
    recipe: "Recipe | DistillRecipe", world: "World", interrupted: "Interruption", command: Sequence[str]
) -> TrainingReport:
    from lightbert.train.pretraining import distill, pretrain
    from lightbert.train.settings import DistillRecipe

    out, train = Path(recipe.out), distill if isinstance(recipe, DistillRecipe) else pretrain
    outcome = train(recipe, world, interrupted, command=command)  # type: ignore[arg-type]
    if outcome.finished and world.is_main:
        draw_curves(out, transfer=isinstance(recipe, DistillRecipe) and recipe.transfers_layers)
    return TrainingReport(out, outcome)


def planned(verb: str, recipe: str, values: Mapping[str, Any]) -> "Plan":
    """Return the runs of a command: one, or every combination of ``seeds`` and ``grid``."""
    from lightbert.tasks.finetune.plan import plan

    return plan(read_recipe(verb, recipe), values, recipe_class(verb))


def run_all(plan: "Plan", command: Sequence[str] = ()) -> TrainingReport | Report:
    """Train the runs of a plan one after another, or resume them; several are summarized, in ``out/runs.json`` too."""
    from lightbert.train.distributed import process_group
    from lightbert.train.run_folder import check_grid_folder, locked_run
    from lightbert.train.signals import catch_signals

    if plan.single:
        return run(plan.runs[0].recipe, command)
    reports: list[TrainingReport] = []
    with (
        catch_signals() as interrupted,
        process_group(plan.runs[0].recipe.device) as world,
        locked_run(plan.out, world, check_grid_folder),
    ):
        for number, part in enumerate(plan.runs, start=1):
            if world.is_main:
                settings = " ".join(filter(None, (part.settings, f"seed={part.seed}")))
                print(f"run {number} of {len(plan.runs)}: {settings}", file=sys.stderr)
            reports.append(_run(part.recipe, world, interrupted, command))
            if not reports[-1].finished:
                break
            if world.is_main:
                content = summarize(plan, reports).to_json()
                write_atomic(plan.out / "runs.json", json_format.dumps(content, indent=2) + "\n")
    return summarize(plan, reports)


def draw_curves(out: Path, *, transfer: bool = False, more: Sequence[str] = ()) -> bool:
    """Write ``out/loss.png``, and ``out/transfer.png`` if layers were transferred, or print why it can't.

    more: metrics to plot besides the losses. Returns whether it succeeded.
    """
    from lightbert.analysis.run_log import draw_losses, draw_transfer

    try:
        draw_losses(out / "metrics.jsonl", out / "loss.png", more)
        if transfer:
            draw_transfer(out / "metrics.jsonl", out / "transfer.png")
    except InputError as error:
        print(f"the loss curve was not drawn: {error}", file=sys.stderr)
        return False
    return True


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe, such as tiny-rtd, or a TOML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value pairs, such as data=DIR out=runs/x steps=100 batch=8.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Pre-train an encoder by replaced-token detection or masked language modelling.

    The trained model is written to OUT/final. seeds=[…] and grid.KEY=[…] train every combination, each in a folder in
    OUT/runs, and print the means. After an interruption, run the same command again to resume: SIGTERM and SIGINT save
    a checkpoint and exit with code 75; a second signal stops immediately.
    """
    _train("pretrain", recipe, overrides, json=json)


def distill(
    recipe: Annotated[str, typer.Argument(help="A recipe, such as tiny-distill, or a TOML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value pairs, such as teacher=runs/t/final data=DIR out=runs/s.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Distil a large encoder into a small one, with losses on layers and predictions.

    strategy=pkt transfers one layer after the other, jkt all layers at once before the predictions, akt both together;
    pd transfers predictions only, bare uses no teacher.

    The trained model is written to OUT/final. After an interruption, run the same command again to resume: SIGTERM and
    SIGINT save a checkpoint and exit with code 75; a second signal stops immediately.
    """
    _train("distill", recipe, overrides, json=json)


def _train(verb: str, recipe: str, overrides: list[str] | None, *, json: bool) -> None:
    from lightbert.config import assignments
    from lightbert.train.signals import EXIT_CODE

    values: Mapping[str, Any] = assignments(overrides or [])
    plan = planned(verb, recipe, values)
    for part in plan.runs:
        check_corpus(part.recipe.data, part.recipe.out)
    set_threads(plan.runs[0].recipe.threads)
    report = run_all(plan, command_words(verb, recipe, values))
    if os.environ.get("RANK", "0") == "0":
        show(report, json=json)
    if not report.finished:
        raise typer.Exit(EXIT_CODE)
