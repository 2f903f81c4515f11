"""Attention maps of one model, or of a teacher and a student side by side (MobileBERT Fig. 3)."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from lightbert.analysis.attention_comparison import AttentionComparison
from lightbert.analysis.attention_maps import AttentionMaps
from lightbert.analysis.picture import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_LABELS = 64
_MOST_COLUMNS = 4
"""Heads of a model in a row; further heads continue in the next row."""

Layer = tuple[str, Mapping[str, Tensor]]
"""The title of a layer, and the maps [H, T, T] of each model by name."""


def plot_attention(comparison: AttentionComparison) -> "Figure":
    """Plot each layer: the heads of the teacher on the left, those of the student on the right, on one colour scale."""
    layers = [
        (
            f"layer {layer.layer}: KL(teacher ‖ student) = {layer.divergence:.4g}",
            {"teacher, ": layer.teacher, "student, ": layer.student},
        )
        for layer in comparison.layers
    ]
    return _plot(layers, comparison.tokens, mean=comparison.mean)


def plot_maps(maps: AttentionMaps) -> "Figure":
    """Plot the heads of each layer of one model."""
    layers = [(f"layer {layer.layer}: entropy {layer.entropy:.4g} nats", {"": layer.maps}) for layer in maps.layers]
    return _plot(layers, maps.tokens, mean=maps.mean)


def _plot(layers: Sequence[Layer], tokens: Sequence[str], *, mean: bool) -> "Figure":
    size = min(6.0, max(1.8, 0.16 * len(tokens)))
    grids = [_grid(len(next(iter(sides.values())))) for _, sides in layers]
    width = max(len(sides) * columns for (_, sides), (_, columns) in zip(layers, grids, strict=True)) * size + 2
    heights = [rows * (size + 0.3) + 0.9 for rows, _ in grids]
    figure = new_figure(width, sum(heights))
    places = figure.subfigures(len(layers), 1, squeeze=False, height_ratios=heights)[:, 0]
    for place, (title, sides), grid in zip(places, layers, grids, strict=True):
        place.suptitle(title)
        _draw_layer(place, sides, tokens, grid, mean=mean)
    return figure


def _grid(heads: int) -> tuple[int, int]:
    """The rows and columns of a model's heads."""
    columns = min(heads, _MOST_COLUMNS)
    return math.ceil(heads / columns), columns


def _draw_layer(
    place: Any, sides: Mapping[str, Tensor], tokens: Sequence[str], grid: tuple[int, int], *, mean: bool
) -> None:
    rows, columns = grid
    # An empty column separates the models.
    widths = [*([1.0] * columns), *(len(sides) - 1) * [0.15, *([1.0] * columns)]]
    axes = place.subplots(rows, len(widths), squeeze=False, width_ratios=widths)
    for panel in axes.flat:
        panel.set_axis_off()
    brightest = max(maps.max().item() for maps in sides.values())
    for index, (side, maps) in enumerate(sides.items()):
        first = index * (columns + 1)
        for number, weights in enumerate(maps):
            row, column = divmod(number, columns)
            panel = axes[row, first + column]
            panel.set_axis_on()
            image = panel.imshow(weights.numpy(), vmin=0.0, vmax=brightest, cmap="Blues")
            panel.set_title(f"{side}{'mean of heads' if mean else f'head {number + 1}'}", fontsize="small")
            _label(panel, tokens, rows=column == 0, columns=number + columns >= len(maps))
    place.colorbar(image, ax=axes, fraction=0.02).set_label("attention from row to column", fontsize="small")


def _label(panel: Any, tokens: Sequence[str], *, rows: bool, columns: bool) -> None:
    """Label the rows or columns of a map with tokens: the first map of each row, the last map of each column."""
    places = range(0, len(tokens), 1 + (len(tokens) - 1) // _MOST_LABELS)
    names = [tokens[at] for at in places]
    # Dollar signs in a text don't start a formula.
    style = {"fontsize": 6, "parse_math": False}
    panel.set_xticks(places if columns else [], names if columns else [], rotation=90, **style)
    panel.set_yticks(places if rows else [], names if rows else [], **style)
