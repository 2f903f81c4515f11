"""Attention maps: the mean of a model (ConvBERT Fig. 2 and 6), all heads at a glance, and chosen layers in detail."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.analysis.plots.panels import MUTED, PAGE, SMALL, WEIGHTS, frame, label_tokens, page_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 4
"""Maps in a row of a detailed plot; further heads continue in the next row."""
_MOST_PIXELS = 256
_TILE = 48
_GAP = 4
_COLOURBAR = 0.7
# The mean width of a character and the height of a line of a map's title, in inches.
_CHARACTER, _LINE = 0.056, 0.14


@dataclass(frozen=True)
class Maps:
    """Maps [N, T, T] of one model with a title, and the tokens of their rows and columns."""

    title: str
    tokens: tuple[str, ...]
    maps: Tensor
    names: tuple[str, ...]
    """The title of each map."""


Layer = tuple[str, Sequence[Maps]]
"""A title, and the maps of each model to draw side by side."""


def plot_means(models: Sequence[Maps]) -> "Figure":
    """The mean map of each model, side by side on one colour scale."""
    return plot_layers([("", models)], columns=1)


def plot_layers(layers: Sequence[Layer], columns: int = _COLUMNS) -> "Figure":
    """For each layer its title and the maps of each model: the models side by side, on one colour scale per layer."""
    sides = max(len(models) for _, models in layers)
    columns = min(max(1, columns // sides), max(len(each.maps) for _, models in layers for each in models))
    tokens = max(len(each.tokens) for _, models in layers for each in models)
    size = min((PAGE - _COLOURBAR - 0.7) / (sides * columns), max(1.6, 0.12 + tokens * 0.14), 6.2)
    rows = [max(math.ceil(len(each.maps) / columns) for each in models) for _, models in layers]
    labels = min(1.4, 0.2 + 0.065 * max(len(token) for _, models in layers for each in models for token in each.tokens))
    titles = [0.45 if title else 0.1 for title, _ in layers]
    lines = max(_title(each, name, size).count("\n") for _, models in layers for each in models for name in each.names)
    row = size + 0.25 + lines * _LINE
    heights = [count * row + labels + title for count, title in zip(rows, titles, strict=True)]
    width = sides * (columns * size + labels) + _COLOURBAR
    figure = page_figure(sum(heights), width)
    places = figure.subfigures(len(layers), 1, squeeze=False, height_ratios=heights)[:, 0]
    for place, (title, models), count in zip(places, layers, rows, strict=True):
        if title:
            place.suptitle(title, fontsize=10)
        _draw_layer(place, models, (count, columns), size)
    return figure


def _draw_layer(place: Any, models: Sequence[Maps], grid: tuple[int, int], size: float) -> None:
    from matplotlib.colors import PowerNorm

    rows, columns = grid
    # An empty column separates the models.
    widths = [*([1.0] * columns), *(len(models) - 1) * [0.08, *([1.0] * columns)]]
    axes = place.subplots(rows, len(widths), squeeze=False, width_ratios=widths)
    for panel in axes.flat:
        panel.set_axis_off()
    brightest = max(each.maps.max().item() for each in models)
    scale = PowerNorm(0.7, vmin=0.0, vmax=max(brightest, 1e-6))
    for index, each in enumerate(models):
        for number, (weights, name) in enumerate(zip(each.maps, each.names, strict=True)):
            row, column = divmod(number, columns)
            panel = axes[row, index * (columns + 1) + column]
            panel.set_axis_on()
            tokens = len(each.tokens)
            extent = (-0.5, tokens - 0.5, tokens - 0.5, -0.5)
            image = panel.imshow(shrink(weights, _MOST_PIXELS).numpy(), norm=scale, cmap=WEIGHTS, extent=extent)
            panel.set_title(_title(each, name, size), fontsize=8, pad=3)
            below = size if number + columns >= len(each.maps) else 0.0
            label_tokens(panel, each.tokens, rows=size if column == 0 else 0.0, columns=below)
            frame(panel)
    bar = place.colorbar(image, ax=axes, fraction=0.03, pad=0.01, aspect=30)
    bar.set_label("attention from row to column", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL - 1, length=2)
    bar.outline.set(linewidth=0.5, color=MUTED)


def _title(maps: Maps, name: str, size: float) -> str:
    """The title of a map, in lines that are not wider than the map."""
    title = f"{maps.title}, {name}" if maps.title else name
    return textwrap.fill(title, width=max(12, int(size / _CHARACTER)), break_on_hyphens=False)


def plot_overview(models: Sequence[tuple[str, Sequence[Tensor]]]) -> "Figure":
    """All heads of all layers of each model as small maps, a column per layer; each map has its own colour scale."""
    heads = [len(layers[0]) for _, layers in models]
    depth = max(len(layers) for _, layers in models)
    size = min((PAGE - 0.5) / depth, 1.4)
    figure = page_figure(sum(heads) * size + 0.6 * len(models), depth * size + 0.5)
    panels = figure.subplots(len(models), 1, squeeze=False, height_ratios=heads)[:, 0]
    step = _TILE + _GAP
    for panel, (title, layers) in zip(panels, models, strict=True):
        panel.imshow(_mosaic(layers), cmap=WEIGHTS, vmin=0.0, vmax=1.0, interpolation="nearest")
        panel.set_xlim(0, depth * step)
        panel.set_xticks([(at + 0.5) * step for at in range(len(layers))], range(1, len(layers) + 1), fontsize=SMALL)
        panel.set_yticks([(at + 0.5) * step for at in range(len(layers[0]))], range(1, len(layers[0]) + 1))
        panel.xaxis.tick_top()
        panel.tick_params(length=0, labelsize=SMALL)
        panel.set_xlabel("layer", fontsize=8)
        panel.xaxis.set_label_position("top")
        panel.set_ylabel("head", fontsize=8)
        panel.set_title(title, fontsize=10)
        panel.set_frame_on(False)
    return figure


def _mosaic(layers: Sequence[Tensor]) -> Any:
    """Maps as tiles of one image, each scaled to its maximum; gaps are transparent."""
    step = _TILE + _GAP
    image = torch.full((len(layers[0]) * step, len(layers) * step), float("nan"))
    for column, maps in enumerate(layers):
        for row, weights in enumerate(maps):
            # The brightest pixels of a map are often few ([SEP]); the root keeps the others visible.
            tile = (weights / weights.max().clamp(min=1e-12)).sqrt()
            top, left = row * step + _GAP // 2, column * step + _GAP // 2
            image[top : top + _TILE, left : left + _TILE] = tile
    return image.numpy()


def tile(maps: Tensor) -> Tensor:
    """Maps [H, T, T] in the size of an overview's tiles."""
    small = shrink(maps, _TILE)
    resized: Tensor = F.interpolate(small[None], size=(_TILE, _TILE), mode="nearest-exact")[0]
    return resized


def shrink(maps: Tensor, most: int) -> Tensor:
    """Average neighbouring tokens of maps [..., T, T] so that at most ``most`` rows and columns remain."""
    if maps.shape[-1] <= most:
        return maps
    shape = (-1, 1, *maps.shape[-2:])
    small: Tensor = F.adaptive_avg_pool2d(maps.reshape(shape), most)
    return small.reshape(*maps.shape[:-2], most, most)
