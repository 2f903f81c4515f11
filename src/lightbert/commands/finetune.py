"""`lightbert finetune`: fine-tuning from a recipe, as a single run or a grid."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.options import check_file, is_finished
from lightbert.commands.pretrain import draw_curves
from lightbert.commands.recipes import command_words, read_recipe
from lightbert.commands.report import AsJson, show
from lightbert.errors import InputError
from lightbert.processes import set_threads

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from lightbert.tasks.finetune.grid import RunResults
    from lightbert.tasks.finetune.plan import Plan
    from lightbert.tasks.finetune.results import Result, Setting


@dataclass(frozen=True)
class FinetuningReport:
    """The results of the runs, and where they are saved."""

    plan: "Plan"
    runs: "RunResults"
    is_main: bool = True
    """Whether this process prints the report; true for one of several."""

    @property
    def finished(self) -> bool:
        """Whether all runs are finished."""
        return len(self.runs) == len(self.plan.runs) and self.runs[-1][1].finished

    @property
    def model(self) -> Path | None:
        """The model of the best run; None for several tasks, which have one each."""
        tasks = {run.task for run in self.plan.runs}
        return self.plan.out / "final" if self.finished and len(tasks) == 1 else None

    def _settings(self) -> "list[Setting]":
        from lightbert.tasks.finetune.results import settings_of

        return settings_of([(run, result) for run, result in self.runs if result.finished])

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        from lightbert.tasks.finetune.results import glue_scores

        settings = self._settings()
        several = len({setting.task for setting in settings}) > 1
        return {
            "out": str(self.plan.out),
            "model": str(self.model) if self.model else None,
            "finished": self.finished,
            "metrics": {} if several or not settings else _headline(settings),
            "settings": [setting.to_json() for setting in settings],
            "glue": {score.name: score.mean for score in glue_scores(settings)} if several else {},
        }

    def __rich__(self) -> "RenderableType":
        from rich.console import Group

        from lightbert.tasks.finetune.results import glue_scores

        settings = self._settings()
        if not self.finished:
            step = self.runs[-1][1].step
            done = f"{len(self.runs) - 1} of {len(self.plan.runs)} runs finished; " if not self.plan.single else ""
            return f"{done}interrupted and saved at step {step:,}; run the same command again to resume"
        parts: list[RenderableType] = [_table(settings, single=self.plan.single)]
        if self.plan.single and (result := settings[0].runs[0][1]).methods:
            parts.append(_method_table(result))
        if len({setting.task for setting in settings}) > 1:
            parts += [score.sentence() for score in glue_scores(settings)]
        if self.model:
            parts.append(f"model: {self.model}")
        if self.plan.single and (comparison := settings[0].runs[0][1].comparison()):
            parts.append(comparison)
        return Group(*parts)


def _headline(settings: "list[Setting]") -> dict[str, float]:
    """The metrics of the best run."""
    from lightbert.tasks.finetune.results import best_settings

    [best] = best_settings(settings)
    return best.best[1].metrics


def _table(settings: "list[Setting]", *, single: bool) -> "Table":
    """One row per setting with its main metric over the seeds; for a single run all metrics."""
    from rich.table import Table

    table = Table(box=None)
    if single:
        [setting] = settings
        result = setting.runs[0][1]
        table.add_column("metric on dev" if result.step else "metric by cross-validation")
        table.add_column("value", justify="right")
        columns = [result.metrics]
        for title, numbers in (("baseline", result.baseline), ("words", result.words)):
            if numbers:
                table.add_column(title, justify="right")
                columns.append(numbers)
        for name in result.metrics:
            table.add_row(name, *(f"{numbers[name]:.4f}" if name in numbers else None for numbers in columns))
        for split, count in result.skipped.items():
            if count:
                table.add_row(f"skipped rows of {split}", f"{count:,}")
        if not result.step:
            return table
        best = result.best_step >= 0
        table.add_row("weights", f"best, of step {result.best_step:,}" if best else f"last, of step {result.step:,}")
        return table
    for title in ("task", "setting", "metric", "runs"):
        table.add_column(title)
    for title in ("median", "mean", "± error", "best", "best seed"):
        table.add_column(title, justify="right")
    for setting in settings:
        numbers = setting.numbers(setting.metric)
        figures = (f"{numbers[name]:.4f}" for name in ("median", "mean", "error", "best"))
        runs, seed = str(len(setting.runs)), str(setting.best[0].seed)
        table.add_row(setting.task or "own", setting.settings or "-", setting.metric, runs, *figures, seed)
    return table


def _method_table(result: "Result") -> "Table":
    """One row per method, with the expected score and its standard error."""
    from rich.table import Table
    from rich.text import Text

    table = Table("method", box=None)
    for title in (f"expected {result.metric}", "± error", "seconds", "texts/s"):
        table.add_column(title, justify="right")
    for name, row in result.methods.items():
        rate = f"{row['rate']:,.0f}" if row["rate"] else None
        style = "bold" if name == result.method else ""
        table.add_row(Text(name, style), f"{row['score']:.4f}", f"{row['error']:.4f}", f"{row['seconds']:.1f}", rate)
    return table


def run(plan: "Plan", command: Sequence[str] = ()) -> FinetuningReport:
    """Train all runs, or resume them.

    command: the words of the command, for the model cards.
    """
    from lightbert.tasks.finetune.grid import run_all
    from lightbert.train.distributed import process_group
    from lightbert.train.signals import catch_signals

    data = plan.runs[0].recipe.data
    if not isinstance(data, str) and data.test:
        raise InputError(
            f"data.test is not used in fine-tuning, got '{data.test}'; leave it out, and then evaluate the model: "
            f"lightbert evaluate {plan.out}/final --data {data.test} --split test"
        )
    with catch_signals() as interrupted, process_group(plan.runs[0].recipe.device) as world:
        runs = run_all(plan, world, interrupted, command)
    if world.is_main:
        _draw(runs)
    return FinetuningReport(plan, runs, is_main=world.is_main)


def _check_files(plan: "Plan") -> None:
    """Check that the files of runs that are not finished exist."""
    for recipe in (planned.recipe for planned in plan.runs):
        if not is_finished(recipe.out):
            files = (recipe.data,) if isinstance(recipe.data, str) else (recipe.data.train, recipe.data.dev)
            for path in files:
                check_file(path)


def _announce_data(plan: "Plan") -> None:
    """Read the data of the first run that is not finished, and print a summary, before PyTorch is imported."""
    from lightbert.tasks.finetune.dataset import announce_data

    recipe = next((planned.recipe for planned in plan.runs if not is_finished(planned.recipe.out)), None)
    if recipe is not None and os.environ.get("RANK", "0") == "0":
        announce_data(recipe)


def _draw(runs: "RunResults") -> None:
    """Plot the loss and the main metric of each finished run, until it fails."""
    for planned, result in runs:
        out = Path(planned.recipe.out)
        if (
            result.finished
            and result.step
            and not (out / "loss.png").exists()
            and not draw_curves(out, more=[result.metric])
        ):
            return


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe, such as classify, or a TOML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="key=value pairs: model=FOLDER out=DIR, and task=rte data=GLUE or data.train=my.csv data.text=body "
            "data.label=topic; also seeds=[1,2,3], grid.lr=[1e-4,3e-4], tasks=[rte,mrpc]."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Fine-tune an encoder on GLUE, SQuAD, tagged words or your own files.

    The trained model is written to OUT/final. seeds=[…], grid.KEY=[…] and tasks=[…] run every combination, each in a
    separate folder, and summarize them in one table. After an interruption, run the same command again to resume.
    """
    from lightbert.config import assignments
    from lightbert.tasks.finetune.plan import expand_data_key, plan
    from lightbert.train.signals import EXIT_CODE

    values = assignments(expand_data_key(overrides or []))
    planned = plan(read_recipe("finetune", recipe), values)
    _check_files(planned)
    set_threads(planned.runs[0].recipe.threads)
    _announce_data(planned)
    report = run(planned, command_words("finetune", recipe, values))
    if report.is_main:
        show(report, json=json)
    if not report.finished:
        raise typer.Exit(EXIT_CODE)
