"""`lightbert analyse`: pictures and numbers of what was learned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.report import AsJson, Report, show
from lightbert.errors import InputError, unknown

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Config:
    """Which analysis, of which run or model, and what else it takes."""

    name: str = ""
    subject: str = ""
    teacher: str = ""
    text: str = ""
    layers: str = ""
    mean: bool = False
    out: str = ""


@dataclass(frozen=True)
class AnalysisList:
    """The analyses by name, with the command for each."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        return {"analyses": {name: {"command": line, "what": what} for name, (line, what, _) in ANALYSES.items()}}

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        table = Table("analysis", "command", "what is shown")
        for name, (line, what, _) in ANALYSES.items():
            table.add_row(name, line, what)
        return table


@dataclass(frozen=True)
class AnalysisReport:
    """The picture and numbers of an analysis; `details` appear in the JSON only."""

    picture: Path
    columns: tuple[str, ...]
    rows: Sequence[tuple[str | float | None, ...]]
    metrics: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        return {"picture": str(self.picture), "metrics": self.metrics, **self.details}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        table = Table(*self.columns)
        for row in self.rows:
            table.add_row(*map(_shown, row))
        return Group(table, f"picture: {self.picture}")


def run(config: Config) -> Report:
    """List the analyses, or do one."""
    if not config.name:
        return AnalysisList()
    if config.name not in ANALYSES:
        raise unknown("analysis", config.name, ANALYSES)
    line, _, analyse = ANALYSES[config.name]
    if not config.subject:
        raise InputError(f"the analysis {config.name!r} needs something to look at: {line}")
    return analyse(config)


def transfer(config: Config) -> AnalysisReport:
    """Draw how the layers of a distillation came nearer to the teacher's."""
    from lightbert.analysis.transfer_plot import draw_transfer

    folder = Path(config.subject)
    picture = Path(config.out) if config.out else folder / "transfer.png"
    history = draw_transfer(folder / "metrics.jsonl", picture)
    latest = history.latest
    kinds = [kind for kind in ("fmt", "at") if f"{kind}_{history.layers[0]}" in latest]
    return AnalysisReport(
        picture,
        columns=("layer", *kinds),
        rows=[(str(layer), *(latest.get(f"{kind}_{layer}") for kind in kinds)) for layer in history.layers],
        metrics=latest,
        details={
            "split": "held-out" if history.held_out else "train",
            "stages": [{"learns": stage.name, "steps": [stage.first, stage.last]} for stage in history.stages],
        },
    )


def attention(config: Config) -> AnalysisReport:
    """Draw the attention of teacher and student side by side; the numbers are of all layers, whichever are drawn."""
    from lightbert.analysis.attention_comparison import compare_attention
    from lightbert.analysis.attention_plot import plot_attention
    from lightbert.analysis.picture import write
    from lightbert.interop.load import load

    for option, value in (("--teacher FOLDER", config.teacher), ("--text TEXT", config.text)):
        if not value.strip():
            raise InputError(f"attention is compared with a teacher's, in a text: add {option}")
    drawn = _numbers(config.layers)
    compared = compare_attention(load(config.teacher), load(config.subject), config.text, mean=config.mean)
    picture = Path(config.out or "attention.png")
    write(plot_attention(compared.of(drawn or sorted({1, len(compared.layers)}))), picture)
    heads = [] if config.mean else [f"head {n}" for n, _ in enumerate(compared.layers[0].divergences, start=1)]
    return AnalysisReport(
        picture,
        columns=("layer", "KL", *heads),
        rows=[(str(each.layer), each.divergence, *each.divergences[: len(heads)]) for each in compared.layers],
        metrics={f"kl_{each.layer}": each.divergence for each in compared.layers},
        details={
            "tokens": list(compared.tokens),
            "heads": {str(each.layer): list(each.divergences) for each in compared.layers},
        },
    )


ANALYSES: dict[str, tuple[str, str, Callable[[Config], Report]]] = {
    "transfer": (
        "lightbert analyse transfer RUN",
        "how far each layer of a student was from its teacher's, over the steps of a distillation",
        transfer,
    ),
    "attention": (
        "lightbert analyse attention STUDENT --teacher TEACHER --text TEXT",
        "what the heads of a teacher and a student look at in a text, side by side",
        attention,
    ),
}
"""Name -> the command, what it shows, and what does it."""


def command(
    name: Annotated[str, typer.Argument(help="transfer or attention; without a name, the list of analyses.")] = "",
    subject: Annotated[str, typer.Argument(help="The folder of a run, or of a model.")] = "",
    teacher: Annotated[str, typer.Option(help="attention: the folder of the model to compare with.")] = "",
    text: Annotated[str, typer.Option(help="attention: what both models read.")] = "",
    layers: Annotated[str, typer.Option(help="attention: layers to draw, such as 1,4; else the first and last.")] = "",
    mean: Annotated[bool, typer.Option("--mean", help="attention: average the heads of each model.")] = False,
    out: Annotated[str, typer.Option(help="The picture; else RUN/transfer.png, or attention.png here.")] = "",
    json: AsJson = False,
) -> None:
    """Draw what a model learned, and print the numbers.

    `transfer` draws the distance of feature maps and attention layer by layer, over the steps of a distillation.
    `attention` draws the attention maps of a student beside its teacher's, with their divergence.
    """
    show(run(Config(name, subject, teacher, text, layers, mean, out)), json=json)


def _numbers(listed: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in listed.split(",")) if listed else ()
    except ValueError:
        raise InputError(f"layers = {listed!r} are no numbers: list them like 1,4") from None


def _shown(cell: str | float | None) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:.4g}"
