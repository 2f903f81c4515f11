"""Plot of a knowledge transfer: feature map and attention losses of each layer over the steps."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.analysis.picture import new_figure, write
from lightbert.analysis.transfer_history import Stage, TransferHistory, read_history

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES = {"fmt": "feature maps (FMT, weighted)", "at": "attention (AT, KL divergence)"}
_MAX_HORIZONTAL_LABELS = 4


def draw_transfer(metrics: Path, picture: Path) -> TransferHistory:
    """Plot the layer losses in metrics.jsonl, and return them."""
    history = read_history(metrics)
    write(plot_transfer(history), picture)
    return history


def plot_transfer(history: TransferHistory) -> "Figure":
    """Plot one panel per loss: dots are held-out text, faint lines training; later layers are brighter."""
    kinds = [kind for kind in _TITLES if kind in history.train or kind in history.held_out]
    figure = new_figure(7 * len(kinds) + 1, 4.8)
    from matplotlib import colormaps

    layers = history.layers
    # The end of the scale is too bright on white.
    colours = {layer: colormaps["viridis"](0.9 * at / max(1, len(layers) - 1)) for at, layer in enumerate(layers)}
    panels = figure.subplots(1, len(kinds), squeeze=False)[0]
    for panel, kind in zip(panels, kinds, strict=True):
        train, held_out = history.train.get(kind, {}), history.held_out.get(kind, {})
        for layer in layers:
            steps, values = _columns(train.get(layer, []))
            panel.plot(steps, values, color=colours[layer], linewidth=0.7, alpha=0.4)
            steps, values = _columns(held_out.get(layer, []))
            panel.plot(steps, values, "o-", color=colours[layer], linewidth=1, markersize=3, label=str(layer))
        # A log scale needs a positive value; others are clipped at the lower edge.
        if any(value > 0 for curves in (train, held_out) for each in curves.values() for _, value in each):
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
        upright = 90 if len(stages) > _MAX_HORIZONTAL_LABELS else 0
        middles = [(stage.first - 1 + stage.last) / 2 for stage in stages]
        above.set_xticks(middles, [stage.name for stage in stages], rotation=upright, fontsize="small")
        above.tick_params(length=0)
        above.set_xlabel("stage", fontsize="small")


def _columns(points: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [step for step, _ in points], [value for _, value in points]
