"""Attention maps of a teacher and a student side by side (MobileBERT Fig. 3)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from lightbert.analysis.attention_comparison import AttentionComparison, LayerAttention
from lightbert.analysis.picture import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_LABELS = 64


def plot_attention(comparison: AttentionComparison) -> "Figure":
    """Plot one row per layer: the heads of the teacher, then those of the student, on one colour scale."""
    size = min(6.0, max(1.8, 0.16 * len(comparison.tokens)))
    heads = len(comparison.layers[0].divergences)
    figure = new_figure(2 * heads * size + 2, len(comparison.layers) * (size + 1.2))
    rows = figure.subfigures(len(comparison.layers), 1, squeeze=False)[:, 0]
    for row, layer in zip(rows, comparison.layers, strict=True):
        _draw_layer(row, layer, comparison.tokens, mean=comparison.mean)
    return figure


def _draw_layer(row: Any, layer: LayerAttention, tokens: Sequence[str], *, mean: bool) -> None:
    row.suptitle(f"layer {layer.layer}: KL(teacher ‖ student) = {layer.divergence:.4g}")
    heads = len(layer.divergences)
    # An empty column separates the two models.
    widths = [1.0] * heads + [0.15] + [1.0] * heads
    axes = row.subplots(1, len(widths), width_ratios=widths)
    axes[heads].set_axis_off()
    brightest = max(layer.teacher.max().item(), layer.student.max().item())
    for side, maps, panels in (
        ("teacher", layer.teacher, axes[:heads]),
        ("student", layer.student, axes[heads + 1 :]),
    ):
        for number, (weights, panel) in enumerate(zip(maps, panels, strict=True), start=1):
            image = _draw_map(panel, weights, brightest)
            panel.set_title(f"{side}, {'mean of heads' if mean else f'head {number}'}", fontsize="small")
            _label(panel, tokens, rows=number == 1)
    row.colorbar(image, ax=axes, fraction=0.02).set_label("attention from row to column", fontsize="small")


def _draw_map(panel: Any, weights: Tensor, brightest: float) -> Any:
    return panel.imshow(weights.numpy(), vmin=0.0, vmax=brightest, cmap="Blues")


def _label(panel: Any, tokens: Sequence[str], *, rows: bool) -> None:
    """Label the columns of a map with tokens, and the rows of the first map of each model."""
    places = range(0, len(tokens), 1 + (len(tokens) - 1) // _MOST_LABELS)
    # Dollar signs in a text don't start a formula.
    style = {"fontsize": 6, "parse_math": False}
    panel.set_xticks(places, [tokens[at] for at in places], rotation=90, **style)
    panel.set_yticks(places if rows else [], [tokens[at] for at in places] if rows else [], **style)
