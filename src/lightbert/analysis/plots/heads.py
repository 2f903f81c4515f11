"""Statistics of heads: a number per layer and head, attention by distance, the overlap of heads."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from lightbert.analysis.plots.panels import MUTED, PAGE, POSITIVE, SMALL, WEIGHTS, frame, page_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Grid = tuple[str, Tensor]
"""A title, and a number per layer and head [L, H]."""

_CELL = 0.42
_MOST_NUMBERS = 24
"""The labels of more layers don't fit."""


def plot_grids(grids: Sequence[Grid], *, columns: int = 2, logarithmic: bool = False) -> "Figure":
    """Numbers per layer and head as colours and text; grids of the same title share a colour scale."""
    from matplotlib.colors import LogNorm, Normalize

    columns = min(columns, len(grids))
    rows = -(-len(grids) // columns)
    depth, heads = (max(values.shape[side] for _, values in grids) for side in (0, 1))
    width = min(PAGE, columns * (max(depth * _CELL, 1.6) + 0.6))
    height = rows * (max(heads * 0.24, 0.4) + 0.65)
    figure = page_figure(height, width)
    panels = figure.subplots(rows, columns, squeeze=False)
    shared = {title.rpartition(": ")[2] for title, _ in grids}
    scales: dict[str, Any] = {}
    for name in shared:
        same = [each for title, each in grids if title.rpartition(": ")[2] == name]
        low, high = min(each.min().item() for each in same), max(each.max().item() for each in same)
        scales[name] = LogNorm(max(low, 1e-3), max(high, 2e-3)) if logarithmic else Normalize(min(low, 0.0), high)
    for panel in panels.flat[len(grids) :]:
        panel.set_axis_off()
    for panel, (title, values) in zip(panels.flat, grids, strict=False):
        cell = (width / columns - 0.6) / values.shape[0]
        _draw_grid(panel, title, values, scales[title.rpartition(": ")[2]], cell)
    return figure


def _draw_grid(panel: Any, title: str, values: Tensor, scale: Any, cell: float) -> None:
    panel.imshow(values.T.numpy(), cmap=WEIGHTS, norm=scale, aspect="auto")
    layers, heads = values.shape
    every = 1 + (layers - 1) // _MOST_NUMBERS
    panel.set_xticks(range(0, layers, every), range(1, layers + 1, every), fontsize=SMALL)
    panel.set_yticks(range(heads), range(1, heads + 1), fontsize=SMALL)
    panel.tick_params(length=0)
    panel.set_xlabel("layer", fontsize=SMALL)
    panel.set_ylabel("head", fontsize=SMALL)
    panel.set_title(title, fontsize=9)
    frame(panel)
    if cell < 0.2:
        return
    size = min(SMALL, cell * 72 / 3.2)
    for layer in range(layers):
        for head in range(heads):
            value = values[layer, head].item()
            dark = scale(value) > 0.6
            panel.text(
                layer, head, _short(value), ha="center", va="center", fontsize=size, color="white" if dark else "black"
            )


def _short(value: float) -> str:
    """At most four characters."""
    if value >= 999.5:
        return ">999"
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"[1:]


def plot_layer_values(models: Sequence[tuple[str, Tensor]], lines: dict[str, float], label: str) -> "Figure":
    """A value per layer of each model [L] on a logarithmic scale; horizontal lines are values to compare with."""
    figure = page_figure(2.8, min(PAGE, 7.0))
    panel = figure.subplots()
    colours = [POSITIVE, "#d9822b"]
    for (name, values), colour in zip(models, colours, strict=False):
        panel.plot(
            range(1, len(values) + 1), values.numpy(), "o-", color=colour, markersize=4, label=name or "by layer"
        )
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter("")
    for (name, value), style in zip(lines.items(), ("-", "--", ":", "-."), strict=False):
        panel.axhline(value, color=MUTED, linewidth=1, linestyle=style, label=f"{name}: {value:.3g}")
    layers = max(len(values) for _, values in models)
    panel.set_xticks(range(1, layers + 1))
    panel.set_xlabel("layer", fontsize=8)
    panel.set_ylabel(label, fontsize=8)
    panel.tick_params(labelsize=SMALL)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def plot_profiles(models: Sequence[tuple[str, Tensor]]) -> "Figure":
    """Attention by offset [L, H, K] of each model: a row per head, grouped by layer."""
    from matplotlib.colors import PowerNorm

    rows = max(values.shape[0] * values.shape[1] for _, values in models)
    height = min(9.0, max(2.4, rows * 0.085)) + 0.7
    figure = page_figure(height, min(PAGE, 4.2 * len(models)))
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    scale = PowerNorm(0.6, vmin=0.0, vmax=max(values.max().item() for _, values in models))
    for panel, (name, values) in zip(panels, models, strict=True):
        layers, heads, taps = values.shape
        weights = values.flatten(0, 1).numpy()
        image = panel.imshow(weights, cmap=WEIGHTS, norm=scale, aspect="auto", interpolation="nearest")
        _mark_layers(panel, layers, heads)
        radius = taps // 2
        panel.set_xticks(range(taps), [f"{offset:+d}" if offset else "0" for offset in range(-radius, radius + 1)])
        panel.tick_params(labelsize=SMALL - 1, length=0)
        panel.set_xlabel("offset of the attended token", fontsize=SMALL)
        panel.set_ylabel("layer", fontsize=SMALL)
        panel.set_title(name, fontsize=9)
        frame(panel)
    bar = figure.colorbar(image, ax=list(panels), fraction=0.04, pad=0.02)
    bar.ax.tick_params(labelsize=SMALL - 1, length=2)
    bar.outline.set(linewidth=0.5, color=MUTED)
    return figure


def plot_overlap(models: Sequence[tuple[str, Tensor, int]]) -> "Figure":
    """The overlap of each pair of heads [L·H, L·H] of each model, with its number of heads per layer."""
    size = min(PAGE / len(models) - 0.4, 5.2)
    figure = page_figure(size + 0.5, len(models) * (size + 0.3) + 0.6)
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for panel, (name, values, heads) in zip(panels, models, strict=True):
        image = panel.imshow(values.numpy(), cmap=WEIGHTS, vmin=0.0, vmax=1.0, interpolation="nearest")
        _mark_layers(panel, len(values) // heads, heads, both=True)
        panel.tick_params(labelsize=SMALL, length=0)
        panel.set_xlabel("layer", fontsize=SMALL)
        panel.set_ylabel("layer", fontsize=SMALL)
        panel.set_title(name, fontsize=9)
        frame(panel)
    bar = figure.colorbar(image, ax=list(panels), fraction=0.04, pad=0.02)
    bar.set_label("overlap", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL - 1, length=2)
    bar.outline.set(linewidth=0.5, color=MUTED)
    return figure


def _mark_layers(panel: Any, layers: int, heads: int, *, both: bool = False) -> None:
    """Separate the heads of layers by lines, and label the layers."""
    middles = [layer * heads + (heads - 1) / 2 for layer in range(layers)]
    panel.set_yticks(middles, range(1, layers + 1))
    for layer in range(1, layers):
        panel.axhline(layer * heads - 0.5, color=MUTED, linewidth=0.4)
    if both:
        panel.set_xticks(middles, range(1, layers + 1))
        for layer in range(1, layers):
            panel.axvline(layer * heads - 0.5, color=MUTED, linewidth=0.4)
