"""`lightbert finetune`: an encoder becomes a classifier, a tagger, a reader; one run or a grid of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.report import AsJson, show
from lightbert.commands.training import key_list, read_recipe

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from lightbert.tasks.finetune.grid import RunResults
    from lightbert.tasks.finetune.plan import Plan
    from lightbert.tasks.finetune.summary import Setting


@dataclass(frozen=True)
class Finetuned:
    """How the runs ended, and where their results are."""

    plan: "Plan"
    runs: "RunResults"
    leads: bool = True
    """Whether this process, of several, is the one that prints."""

    @property
    def finished(self) -> bool:
        """Whether every run is done."""
        return len(self.runs) == len(self.plan.runs) and self.runs[-1][1].finished

    @property
    def model(self) -> Path | None:
        """The trained model: of several runs the best one's; of several tasks each has its own."""
        tasks = {planned.task for planned in self.plan.runs}
        return self.plan.out / "final" if self.finished and len(tasks) == 1 else None

    def _settings(self) -> "list[Setting]":
        from lightbert.tasks.finetune.summary import settings_of

        return settings_of([(planned, result) for planned, result in self.runs if result.finished])

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        from lightbert.tasks.finetune.summary import glue_scores

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

        from lightbert.tasks.finetune.summary import glue_scores

        settings = self._settings()
        if not self.finished:
            step = self.runs[-1][1].step
            done = f"{len(self.runs) - 1} of {len(self.plan.runs)} runs finished; " if not self.plan.single else ""
            return f"{done}interrupted and saved at step {step:,}; the same command goes on from there"
        parts: list[RenderableType] = [_table(settings, single=self.plan.single)]
        if len({setting.task for setting in settings}) > 1:
            parts += [score.sentence() for score in glue_scores(settings)]
        if self.model:
            parts.append(f"model: {self.model}")
        return Group(*parts)


def _headline(settings: "list[Setting]") -> dict[str, float]:
    """The numbers of the run whose model is kept."""
    from lightbert.tasks.finetune.summary import best_settings

    [best] = best_settings(settings)
    return best.best[1].metrics


def _table(settings: "list[Setting]", *, single: bool) -> "Table":
    """One line per setting: its main number over the seeds; for a single run every number."""
    from rich.table import Table

    table = Table(box=None)
    if single:
        table.add_column("metric on dev")
        table.add_column("value", justify="right")
        [setting] = settings
        result = setting.runs[0][1]
        for name, value in result.metrics.items():
            table.add_row(name, f"{value:.4f}")
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


def run(plan: "Plan") -> Finetuned:
    """Train all runs, or go on where they stopped."""
    from lightbert.tasks.finetune.grid import run_all
    from lightbert.train.distributed import world
    from lightbert.train.signals import interruption

    with interruption() as interrupted, world(plan.runs[0].recipe.device) as place:
        return Finetuned(plan, run_all(plan, place, interrupted), leads=place.leads)


def epilog() -> str:
    """Return the list of keys that ends the text of --help."""
    return key_list("finetune")


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
    """Fine-tune an encoder on a task of GLUE, on SQuAD, on tagged words, or on your own files.

    The trained model is the folder OUT/final. With seeds=[…], grid.KEY=[…] or tasks=[…] every combination is run, each
    in a folder of its own, and summed up in one table. Run the same command again to go on after an interruption.
    """
    from lightbert.config import assignments
    from lightbert.tasks.finetune.plan import expand_data_key, plan
    from lightbert.train.signals import EXIT_CODE

    report = run(plan(read_recipe("finetune", recipe), assignments(expand_data_key(overrides or []))))
    if report.leads:
        show(report, json=json)
    if not report.finished:
        raise typer.Exit(EXIT_CODE)
