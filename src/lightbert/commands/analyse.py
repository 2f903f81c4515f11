"""`lightbert analyse`: plots and metrics of trained models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.options import options
from lightbert.commands.report import Report, show
from lightbert.errors import InputError, unknown

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Config:
    """The analysis, the run or model to analyse, and the options."""

    name: Annotated[str, typer.Argument(help="transfer or attention; lists the analyses if omitted.")] = ""
    subject: Annotated[str, typer.Argument(help="The folder of a run (transfer) or of a model (attention).")] = ""
    teacher: Annotated[str, typer.Option(help="attention: the folder of a teacher to compare with.")] = ""
    text: Annotated[str, typer.Option(help="attention: the text to read.")] = ""
    layers: Annotated[str, typer.Option(help="attention: layers to plot, such as 1,4; default: first and last.")] = ""
    mean: Annotated[bool, typer.Option("--mean", help="attention: average the heads of each model.")] = False
    out: Annotated[str, typer.Option(help="The file to write; default: RUN/transfer.png or ./attention.png.")] = ""


@dataclass(frozen=True)
class AnalysisList:
    """The available analyses and their commands."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"analyses": {name: {"command": line, "what": what} for name, (line, what, _) in ANALYSES.items()}}

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        table = Table("analysis", "command", "shows")
        for name, (line, what, _) in ANALYSES.items():
            table.add_row(name, line, what)
        return table


@dataclass(frozen=True)
class AnalysisReport:
    """The plot and metrics of an analysis; `details` appear in the JSON only."""

    picture: Path
    columns: tuple[str, ...]
    rows: Sequence[tuple[str | float | None, ...]]
    metrics: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"picture": str(self.picture), "metrics": self.metrics, **self.details}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        table = Table(*self.columns)
        for row in self.rows:
            table.add_row(*map(_format, row))
        return Group(table, f"picture: {self.picture}")


def run(config: Config) -> Report:
    """Run an analysis, or list them."""
    if not config.name:
        return AnalysisList()
    if config.name not in ANALYSES:
        raise unknown("analysis", config.name, ANALYSES)
    line, _, analyse = ANALYSES[config.name]
    if not config.subject:
        raise InputError(f"the analysis {config.name!r} requires a run or a model: {line}")
    return analyse(config)


def transfer(config: Config) -> AnalysisReport:
    """Plot the transfer losses of each layer over the steps of a distillation."""
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
    """Plot the attention maps of a model, or of teacher and student side by side; the metrics cover all layers."""
    if not config.text.strip():
        raise InputError("the analysis 'attention' requires a text; add --text TEXT")
    return _compare_attention(config) if config.teacher.strip() else _show_attention(config)


def _show_attention(config: Config) -> AnalysisReport:
    from lightbert.analysis.attention_maps import attention_maps
    from lightbert.analysis.attention_plot import plot_maps
    from lightbert.analysis.picture import write
    from lightbert.interop.load import load

    drawn = _numbers(config.layers)
    found = attention_maps(load(config.subject), config.text, mean=config.mean)
    picture = Path(config.out or "attention.png")
    write(plot_maps(found.of(drawn or sorted({1, len(found.layers)}))), picture)
    heads = [] if config.mean else _head_columns(len(found.layers[0].entropies))
    return AnalysisReport(
        picture,
        columns=("layer", "entropy", *heads),
        rows=[(str(each.layer), each.entropy, *each.entropies[: len(heads)]) for each in found.layers],
        metrics={f"entropy_{each.layer}": each.entropy for each in found.layers},
        details={
            "tokens": list(found.tokens),
            "heads": {str(each.layer): list(each.entropies) for each in found.layers},
        },
    )


def _compare_attention(config: Config) -> AnalysisReport:
    from lightbert.analysis.attention_comparison import compare_attention
    from lightbert.analysis.attention_plot import plot_attention
    from lightbert.analysis.picture import write
    from lightbert.interop.load import load

    drawn = _numbers(config.layers)
    compared = compare_attention(load(config.teacher), load(config.subject), config.text, mean=config.mean)
    picture = Path(config.out or "attention.png")
    write(plot_attention(compared.of(drawn or sorted({1, len(compared.layers)}))), picture)
    heads = [] if config.mean else _head_columns(len(compared.layers[0].divergences))
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


def _head_columns(count: int) -> list[str]:
    return [f"head {number}" for number in range(1, count + 1)]


ANALYSES: dict[str, tuple[str, str, Callable[[Config], Report]]] = {
    "transfer": (
        "lightbert analyse transfer RUN",
        "the feature map and attention losses of each layer over the steps of a distillation",
        transfer,
    ),
    "attention": (
        "lightbert analyse attention MODEL --text TEXT [--teacher TEACHER]",
        "the attention maps of a model for a text, with the entropy of each head; or of a teacher and a student",
        attention,
    ),
}
"""Name -> (command, description, function)."""


@options(Config)
def command(config: Config, json: bool) -> None:
    """Plot what a model learned, and print the metrics.

    `transfer` plots the feature map and attention losses of each layer over the steps of a distillation. `attention`
    plots the attention maps of a model for a text, with the entropy of each head; with --teacher, the maps of both
    models side by side, with their KL divergence.
    """
    show(run(config), json=json)


def _numbers(listed: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in listed.split(",")) if listed else ()
    except ValueError:
        raise InputError(f"layers must be numbers separated by commas, such as 1,4, got {listed!r}") from None


def _format(cell: str | float | None) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:.4g}"
