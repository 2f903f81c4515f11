"""Convolution kernels: fixed per head (composite Fig. 2), depthwise per channel (Fig. 3), dynamic per token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lightbert.analysis.plots.panels import (
    MUTED,
    NEGATIVE,
    PAGE,
    POSITIVE,
    SIGNED,
    SMALL,
    WEIGHTS,
    label_tokens,
    page_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_LONG_TITLES = 8


def plot_fixed(models: Sequence[tuple[str, Sequence[Tensor]]]) -> "Figure":
    """The kernels of each layer [H, K] of each model as bars: a row per layer, a column per head, one scale."""
    heads = [len(layers[0]) for _, layers in models]
    depth = max(len(layers) for _, layers in models)
    cell = min((PAGE - 0.7 * len(models)) / sum(heads), 1.9)
    figure = page_figure(depth * max(0.42, min(cell * 0.6, 0.8)) + 0.7, sum(heads) * cell + 0.7 * len(models))
    panels = figure.subplots(1, len(models), squeeze=False, width_ratios=heads)[0]
    largest = max(layer.abs().max().item() for _, layers in models for layer in layers) or 1.0
    for panel, (title, layers) in zip(panels, models, strict=True):
        for row, kernels in enumerate(layers):
            for column, kernel in enumerate(kernels):
                _draw_bars(panel, (kernel / largest).tolist(), row, column)
        panel.set_xlim(-0.02, len(layers[0]) - 0.02)
        panel.set_ylim(len(layers), 0)
        panel.set_xticks([at + 0.47 for at in range(len(layers[0]))], range(1, len(layers[0]) + 1))
        panel.set_yticks([at + 0.5 for at in range(len(layers))], range(1, len(layers) + 1))
        panel.xaxis.tick_top()
        panel.xaxis.set_label_position("top")
        panel.set_xlabel("head", fontsize=8)
        panel.set_ylabel("layer", fontsize=8)
        panel.tick_params(labelsize=SMALL, length=0)
        panel.set_title(title, fontsize=10)
        panel.set_frame_on(False)
    return figure


def _draw_bars(panel: Any, kernel: Sequence[float], row: int, column: int) -> None:
    """A kernel in the cell of a row and a column; the largest weight of all kernels fills half of the height."""
    width = 0.94 / len(kernel)
    lefts = [column + tap * width for tap in range(len(kernel))]
    colours = [POSITIVE if weight >= 0 else NEGATIVE for weight in kernel]
    panel.bar(lefts, [-0.45 * weight for weight in kernel], width * 0.86, row + 0.5, align="edge", color=colours)
    panel.plot([column, column + 0.94], [row + 0.5, row + 0.5], color=MUTED, linewidth=0.4)
    middle = column + 0.47
    panel.plot([middle, middle], [row + 0.06, row + 0.94], color=MUTED, linewidth=0.4, linestyle=":")


def plot_depthwise(layers: Sequence[tuple[int, Tensor]]) -> "Figure":
    """The sorted kernels [channels, K] of layers by number, as colours on one scale."""
    figure = page_figure(4.0, min(PAGE, len(layers) * 1.6 + 1.2))
    panel = figure.subplots()
    # A few outliers would make the others invisible.
    largest = max(values.abs().flatten().quantile(0.995).item() for _, values in layers) or 1.0
    image = _draw_row(panel, layers, cmap=SIGNED, vmin=-largest, vmax=largest)
    panel.set_yticks([])
    panel.set_ylabel(f"{len(layers[0][1])} channels", fontsize=SMALL)
    bar = figure.colorbar(image, ax=panel, fraction=0.03, pad=0.01, aspect=40)
    bar.ax.tick_params(labelsize=SMALL - 1, length=2)
    bar.outline.set(linewidth=0.5, color=MUTED)
    return figure


def plot_dynamic(layers: Sequence[tuple[int, Tensor]], tokens: Sequence[str]) -> "Figure":
    """The kernels of a text [H, T, K] in layers: a row per head, a column per layer."""
    heads, count = len(layers[0][1]), len(layers)
    width = max(0.42, min(1.1, (PAGE - 1.6) / count))
    height = min(6.5, max(1.2, len(tokens) * 0.115))
    figure = page_figure(heads * (height + 0.3) + 0.6, count * width + 1.6)
    panels = figure.subplots(heads, 1, squeeze=False)[:, 0]
    brightest = max(kernels.max().item() for _, kernels in layers)
    for head, panel in enumerate(panels):
        label_tokens(panel, tokens, rows=height)
        image = _draw_row(
            panel, [(layer, kernels[head]) for layer, kernels in layers], cmap=WEIGHTS, vmin=0.0, vmax=brightest
        )
        panel.set_ylabel(f"head {head + 1}", fontsize=8)
    bar = figure.colorbar(image, ax=panels, fraction=0.03, pad=0.01, aspect=40)
    bar.ax.tick_params(labelsize=SMALL - 1, length=2)
    bar.outline.set(linewidth=0.5, color=MUTED)
    return figure


@dataclass(frozen=True)
class WordKernels:
    """The kernels [H, K] of an occurrence of a word in one layer, and the tokens that they read."""

    layer: int
    window: tuple[str, ...]
    kernels: Tensor


def plot_word(occurrences: Sequence[Sequence[WordKernels]]) -> "Figure":
    """A row per layer, a column per occurrence: bars are the mean over heads, dots the single heads."""
    rows, columns = len(occurrences[0]), len(occurrences)
    figure = page_figure(rows * 1.75 + 0.3, min(PAGE, columns * 2.6 + 0.5))
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for column, each in enumerate(occurrences):
        for row, word in enumerate(each):
            panel = panels[row, column]
            places = range(len(word.window))
            middle = len(word.window) // 2
            colours = [POSITIVE if place == middle else "#8fb8de" for place in places]
            panel.bar(places, word.kernels.mean(dim=0).numpy(), color=colours)
            for kernel in word.kernels:
                panel.plot(places, kernel.numpy(), ".", color=MUTED, markersize=3)
            panel.set_xticks(places, word.window, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
            panel.get_xticklabels()[middle].set_fontweight("bold")
            panel.tick_params(labelsize=SMALL, length=1.5, pad=1)
            panel.spines[["top", "right"]].set_visible(False)
            if column == 0:
                panel.set_ylabel(f"layer {word.layer}", fontsize=8)
    return figure


def _draw_row(panel: Any, layers: Sequence[tuple[int, Tensor]], **style: Any) -> Any:
    """Draw the kernels [N, K] of several layers next to each other, as one image with gaps."""
    from matplotlib.patches import Rectangle

    taps = layers[0][1].shape[1]
    radius, step, rows = taps // 2, taps + 1, len(layers[0][1])
    image = torch.full((rows, len(layers) * step - 1), float("nan"))
    ticks: dict[int, str] = {}
    for number, (layer, kernels) in enumerate(layers):
        left = number * step
        image[:, left : left + taps] = kernels
        ticks |= {left + radius + offset: f"{offset:+d}" if offset else "0" for offset in {-radius, 0, radius}}
        title = f"layer {layer}" if len(layers) <= _MOST_LONG_TITLES else str(layer)
        panel.annotate(
            title,
            (left + radius, 1.0),
            (0, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
        panel.add_patch(Rectangle((left - 0.5, -0.5), taps, rows, fill=False, edgecolor=MUTED, linewidth=0.5))
    drawn = panel.imshow(image.numpy(), aspect="auto", interpolation="nearest", **style)
    panel.set_xticks(list(ticks), list(ticks.values()))
    panel.tick_params(axis="x", labelsize=SMALL - 1.5, length=1.5, pad=1)
    panel.set_frame_on(False)
    return drawn
