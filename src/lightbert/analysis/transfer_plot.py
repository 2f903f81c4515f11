"""Knowledge transfer as a picture: the distance of feature maps and of attention, layer by layer, over the steps."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.analysis.picture import new_figure, write
from lightbert.analysis.transfer_history import Stage, TransferHistory, read_history

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES = {"fmt": "feature maps (FMT, weighted)", "at": "attention (AT, KL divergence)"}
_MOST_LEVEL_LABELS = 4


def draw_transfer(metrics: Path, picture: Path) -> TransferHistory:
    """Draw what a run's metrics.jsonl says of its layers, and return it."""
    history = read_history(metrics)
    write(plot_transfer(history), picture)
    return history


def plot_transfer(history: TransferHistory) -> "Figure":
    """One panel for each kind of distance: dots are held-out text, faint lines training, later layers brighter."""
    kinds = [kind for kind in _TITLES if kind in history.train or kind in history.held_out]
    figure = new_figure(7 * len(kinds) + 1, 4.8)
    from matplotlib import colormaps

    layers = history.layers
    # Not to the end of the scale, which is too bright for white paper.
    colours = {layer: colormaps["viridis"](0.9 * at / max(1, len(layers) - 1)) for at, layer in enumerate(layers)}
    panels = figure.subplots(1, len(kinds), squeeze=False)[0]
    for panel, kind in zip(panels, kinds, strict=True):
        train, held_out = history.train.get(kind, {}), history.held_out.get(kind, {})
        for layer in layers:
            steps, values = _columns(train.get(layer, []))
            panel.plot(steps, values, color=colours[layer], linewidth=0.7, alpha=0.4)
            steps, values = _columns(held_out.get(layer, []))
            panel.plot(steps, values, "o-", color=colours[layer], linewidth=1, markersize=3, label=str(layer))
        # What is not above zero leaves the panel at its lower edge.
        if any(value > 0 for curves in (train, held_out) for each in curves.values() for _, value in each):
            panel.set_yscale("log", nonpositive="clip")
        panel.set(xlabel="step", title=_TITLES[kind])
        _mark(panel, history.stages)
    legend = {"loc": "outside right upper", "title": "layer", "fontsize": "small", "ncols": 1 + (len(layers) - 1) // 24}
    figure.legend(*panels[0].get_legend_handles_labels(), **legend)
    figure.supxlabel("dots: held-out text; faint lines: training", fontsize="small")
    return figure


def _mark(panel: Any, stages: list[Stage]) -> None:
    """Name the stages above a panel, with a line between two of them."""
    for stage in stages[1:]:
        panel.axvline(stage.first - 1, color="grey", linewidth=0.5, linestyle=":")
    if stages:
        above = panel.secondary_xaxis("top")
        upright = 90 if len(stages) > _MOST_LEVEL_LABELS else 0
        middles = [(stage.first - 1 + stage.last) / 2 for stage in stages]
        above.set_xticks(middles, [stage.name for stage in stages], rotation=upright, fontsize="small")
        above.tick_params(length=0)
        above.set_xlabel("stage", fontsize="small")


def _columns(points: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [step for step, _ in points], [value for _, value in points]
