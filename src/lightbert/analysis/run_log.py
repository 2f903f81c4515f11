"""The log of a run, metrics.jsonl: its losses over the steps, and those of the layers of a distillation."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.analysis.figure import new_figure, write
from lightbert.analysis.report import Picture, Section, Table
from lightbert.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curves = dict[str, dict[int, list[tuple[int, float]]]]
"""Loss ("fmt" or "at") -> layer -> (step, value) pairs."""

_LAYER_LOSS = re.compile(r"(fmt|at)_(\d+)")
_TITLES = {"fmt": "feature maps (FMT, weighted)", "at": "attention (AT, KL divergence)"}
# A plot can't show more steps, and all steps of a long run wouldn't fit in memory.
_TRAINING_POINTS = 4000
_MAX_HORIZONTAL_LABELS = 4


def read_records(metrics: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a log, each with its "kind" and "step", also while the run is in progress."""
    with metrics.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            # The last line may be incomplete while the run is in progress.
            if not line.endswith("\n"):
                return
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                raise InputError(f"line {number} of '{metrics}' is not valid JSON; remove it") from None
            if not isinstance(record, dict) or "kind" not in record or type(record.get("step")) is not int:
                raise InputError(f"line {number} of '{metrics}' is not a JSON object with kind and step; remove it")
            yield record


def draw_losses(metrics: Path, picture: Path, more: Sequence[str] = ()) -> None:
    """Plot every loss of a log over the steps: training as a line, held-out as dots.

    more: further metrics to plot. If no loss has a name of its own, such as "mlm_loss", "loss" is plotted.
    """
    records = list(read_records(metrics))
    # Stages of a run can have different losses.
    losses = list(dict.fromkeys(name for record in records for name in record if name.endswith("_loss")))
    names = [*(losses or ["loss"]), *more]
    figure = new_figure(6 * len(names), 4)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        for kind, style, label in (("train", "-", "training"), ("held-out", "o-", "held out")):
            points = [
                (record["step"], record[name])
                for record in records
                if record["kind"] == kind and isinstance(record.get(name), int | float)
            ]
            if points:
                panel.plot(*zip(*points, strict=True), style, linewidth=0.8, label=label)
        panel.set(xlabel="step", title=name.replace("_", " "))
        if panel.lines:
            panel.legend()
    write(figure, picture)


def draw_transfer(metrics: Path, picture: Path) -> None:
    """Plot the layer losses of a log."""
    write(plot_transfer(read_history(metrics)), picture)


@dataclass
class Stage:
    """Consecutive steps with the same losses: of layers, of predictions, or both. ``last`` is inclusive."""

    name: str
    first: int
    last: int


@dataclass
class TransferHistory:
    """The layer losses of a run on training batches and on held-out text, and its stages."""

    train: Curves = field(default_factory=dict)
    held_out: Curves = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)

    @property
    def layers(self) -> list[int]:
        """The layers with losses, counted from 1."""
        return sorted(
            {layer for curves in (self.train, self.held_out) for layers in curves.values() for layer in layers}
        )

    @property
    def latest(self) -> dict[str, float]:
        """The latest losses by name: on held-out text if there is any, else of training."""
        curves = self.held_out or self.train
        return {f"{kind}_{layer}": points[-1][1] for kind in curves for layer, points in curves[kind].items()}


def read_history(metrics: Path) -> TransferHistory:
    """Read a metrics.jsonl, also of a run in progress; keeps every n-th training step of a long run."""
    if not metrics.is_file():
        raise InputError(f"'{metrics}' not found; give the folder of a run, the out= of `lightbert distill`")
    with metrics.open(encoding="utf-8") as file:
        stride = 1 + sum(1 for _ in file) // _TRAINING_POINTS
    history = TransferHistory()
    for number, record in enumerate(read_records(metrics)):
        losses = [(*match.groups(), record[match[0]]) for match in map(_LAYER_LOSS.fullmatch, record) if match]
        held_out = record["kind"] == "held-out"
        if not held_out:
            _extend_stages(history.stages, record, sorted({int(layer) for _, layer, _ in losses}))
        # Skipped steps belong to a stage, but their losses aren't finite.
        if held_out or (record["kind"] == "train" and number % stride == 0):
            curves = history.held_out if held_out else history.train
            for kind, layer, value in losses:
                # Values that aren't finite are logged as None.
                if value is not None:
                    curves.setdefault(kind, {}).setdefault(int(layer), []).append((record["step"], value))
    if not history.layers:
        raise InputError(
            f"'{metrics}' has no layer losses; give a run of `lightbert distill` with strategy=akt, jkt or pkt"
        )
    return history


def _extend_stages(stages: list[Stage], record: dict[str, Any], layers: Sequence[int]) -> None:
    """Add a training step to the last stage if it has the same losses, else start a new stage."""
    parts = ["–".join(map(str, dict.fromkeys((layers[0], layers[-1]))))] if layers else []
    parts += ["predictions"] if "mlm_loss" in record else []
    name = " + ".join(parts)
    if stages and stages[-1].name == name:
        stages[-1].last = record["step"]
    else:
        stages.append(Stage(name, record["step"], record["step"]))


def transfer_section(folder: Path) -> Section:
    """Plot the feature map and attention losses of each layer over the steps of a run."""
    history = read_history(folder / "metrics.jsonl")
    latest = history.latest
    kinds = [kind for kind in ("fmt", "at") if f"{kind}_{history.layers[0]}" in latest]
    split = "held-out" if history.held_out else "train"
    rows = [(str(layer), *(latest.get(f"{kind}_{layer}") for kind in kinds)) for layer in history.layers]
    return Section(
        "transfer",
        "Knowledge transfer",
        "The distance of the student's layers from the teacher's over the steps of a distillation.",
        (
            Picture(
                "transfer",
                "Dots are held-out text, faint lines training; later layers are brighter. A layer learns in the stage "
                "with its number, and should keep what it learned in later stages.",
                lambda: plot_transfer(history),
            ),
        ),
        (Table(f"Latest losses ({split})", ("layer", *kinds), rows),),
        latest,
        {
            "split": split,
            "stages": [{"learns": stage.name, "steps": [stage.first, stage.last]} for stage in history.stages],
        },
    )


def plot_transfer(history: TransferHistory) -> "Figure":
    """Plot one panel per loss: dots are held-out text, faint lines training; later layers are brighter."""
    kinds = [kind for kind in _TITLES if kind in history.train or kind in history.held_out]
    figure = new_figure(7 * len(kinds) + 1, 4.8)
    from matplotlib import colormaps

    layers = history.layers
    # The end of the scale is too bright on white.
    colours = [colormaps["viridis"](0.9 * index / max(1, len(layers) - 1)) for index in range(len(layers))]
    panels = figure.subplots(1, len(kinds), squeeze=False)[0]
    for panel, kind in zip(panels, kinds, strict=True):
        curves = (history.train.get(kind, {}), history.held_out.get(kind, {}))
        for layer, colour in zip(layers, colours, strict=True):
            train, held_out = ([*zip(*points.get(layer, []), strict=True)] or [(), ()] for points in curves)
            panel.plot(*train, color=colour, linewidth=0.7, alpha=0.4)
            panel.plot(*held_out, "o-", color=colour, linewidth=1, markersize=3, label=str(layer))
        # A log scale needs a positive value; others are clipped at the lower edge.
        if any(value > 0 for losses in curves for points in losses.values() for _, value in points):
            panel.set_yscale("log", nonpositive="clip")
        panel.set(xlabel="step", title=_TITLES[kind])
        _label_stages(panel, history.stages)
    legend = {"loc": "outside right upper", "title": "layer", "fontsize": "small", "ncols": 1 + (len(layers) - 1) // 24}
    figure.legend(*panels[0].get_legend_handles_labels(), **legend)
    figure.supxlabel("dots: held-out text; faint lines: training", fontsize="small")
    return figure


def _label_stages(panel: Any, stages: list[Stage]) -> None:
    """Label the stages above a panel, separated by lines."""
    for stage in stages[1:]:
        panel.axvline(stage.first - 1, color="grey", linewidth=0.5, linestyle=":")
    if stages:
        above = panel.secondary_xaxis("top")
        rotation = 90 if len(stages) > _MAX_HORIZONTAL_LABELS else 0
        middles = [(stage.first - 1 + stage.last) / 2 for stage in stages]
        above.set_xticks(middles, [stage.name for stage in stages], rotation=rotation, fontsize="small")
        above.tick_params(length=0)
        above.set_xlabel("stage", fontsize="small")
