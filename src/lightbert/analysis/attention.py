"""Attention maps of texts: the mean of a model (ConvBERT Fig. 2 and 6), all heads at a glance, chosen layers."""

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lightbert.analysis.figure import PAGE, WEIGHTS, add_colourbar, label_tokens, new_figure, style_axes
from lightbert.analysis.report import Picture, Section, Table
from lightbert.analysis.study import Observation, Study
from lightbert.objectives.distill.losses import attention_transfer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SUMMARY = (
    "A row of a map shows how much a token attends to every token of the text, in columns; a row sums to one. A strong "
    "diagonal is attention to neighbours, a strong column a token that all others attend to, often [CLS] or [SEP]."
)
_MEAN = (
    "The mean over all layers and heads, as in ConvBERT Fig. 2 and 6. The stronger the diagonal, the more of the "
    "model's attention is local."
)
_OVERVIEW = (
    "Every head of every layer; each map has its own colour scale. Convolution heads have no map. Diagonals are "
    "local heads, vertical lines are heads that attend to one token; maps that look alike are redundant."
)

_COLUMNS = 4
"""Maps in a row of a detailed plot; further heads continue in the next row."""
_MAX_PIXELS = 256
_TILE, _GAP = 48, 4
_COLOURBAR = 0.7
# The mean width of a character and the height of a line of a map's title, in inches.
_CHARACTER, _LINE = 0.056, 0.14


def attention_section(study: Study) -> Section:
    """Draw the maps; the metrics are the entropy of each layer, or with a teacher KL(teacher ‖ student)."""
    study.check_drawn("attention")
    study.check_maps("attention")
    texts = [_measure(study, text) for text in range(len(study.texts.drawn))]
    columns = {f"{subject.prefix}entropy": subject.title("entropy") for subject in study.subjects}
    title = "Entropy in nats by layer"
    if study.shared_heads is not None:
        columns, title = {"kl": "KL"}, "KL(teacher ‖ student) by layer"
    # The mean over texts and heads of each layer.
    values = {
        name: [fmean(map(fmean, layer)) for layer in zip(*(text[name] for text in texts), strict=True)]
        for name in columns
    }
    rows = [(str(layer), *row) for layer, row in enumerate(zip_longest(*values.values()), start=1)]
    return Section(
        "attention",
        "Attention maps",
        _SUMMARY,
        tuple(picture for text in range(len(texts)) for picture in _pictures(study, text)),
        (Table(title, ("layer", *columns.values()), rows),),
        {f"{name}_{layer}": value for name, layers in values.items() for layer, value in enumerate(layers, start=1)},
        {"texts": texts},
    )


def _measure(study: Study, text: int) -> dict[str, Any]:
    """The tokens of a text, and the entropy or divergence of each layer and head."""
    observations = [study.observe(which, text) for which in range(len(study.subjects))]
    measures: dict[str, Any] = {"tokens": list(observations[-1].tokens)}
    if study.shared_heads is not None:
        pairs = zip(*(_compared(study, observation) for observation in observations), strict=True)
        return measures | {"kl": [divergences(*pair) for pair in pairs]}
    for subject, observation in zip(study.subjects, observations, strict=True):
        measures[f"{subject.prefix}entropy"] = [entropies(_heads_or_mean(study, logs)) for logs in observation.logs]
    return measures


def divergences(teacher: Tensor, student: Tensor) -> list[float]:
    """KL(teacher ‖ student) of each head, averaged over tokens, from log maps [H, T, T] (MobileBERT Eq. 3)."""
    tokens = teacher.shape[-1]
    keep = torch.ones(1, tokens)
    return [
        attention_transfer(teacher[head][None, None], student[head][None, None], keep).item() / tokens
        for head in range(len(teacher))
    ]


def entropies(logs: Tensor) -> list[float]:
    """The entropy of each head in nats, averaged over tokens: 0 if every token attends to one token only."""
    # A weight of 0 contributes nothing.
    return [*torch.special.entr(logs.exp()).sum(dim=-1).mean(dim=-1).tolist()]


def _heads_or_mean(study: Study, logs: Tensor) -> Tensor:
    """Log maps [H, T, T], or the logarithm of their mean [1, T, T]."""
    return logs.logsumexp(dim=0, keepdim=True) - math.log(len(logs)) if study.settings.mean else logs


def _compared(study: Study, observation: Observation) -> list[Tensor]:
    """The log maps of each layer that are compared with those of the other model."""
    return [_heads_or_mean(study, logs[: study.shared_heads or None]) for logs in observation.logs]


def _pictures(study: Study, text: int) -> list[Picture]:
    def picture(name: str, caption: str, plot: "Callable[[list[Observation]], Figure]") -> Picture:
        number = f"-{text + 1}" if len(study.texts.drawn) > 1 else ""
        prefix = f"Text {text + 1}. " if number else ""
        return Picture(
            f"{name}{number}",
            f"{prefix}{caption}",
            lambda: plot([study.observe(which, text) for which in range(len(study.subjects))]),
        )

    def mean(observations: list[Observation]) -> "Figure":
        subjects = zip(study.subjects, observations, strict=True)
        title = "mean of layers and heads"
        maps = [Maps(seen.tokens, seen.mean_map()[None], (subject.title(title),)) for subject, seen in subjects]
        return plot_layers([("", maps)], columns=1)

    # With a teacher both models, else the heads, or with `mean` a map per layer.
    layer_maps, scale = _heads, ", on one colour scale per layer."
    default: tuple[int, ...] = (1, -1)
    if study.shared_heads is not None:
        layer_maps = _pairs
    elif study.settings.mean:
        layer_maps, scale, default = _layer_means, ".", ()
    layers = study.layers(study.subjects[-1], default)
    detail = picture(
        "layers",
        f"Layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))} in detail{scale}",
        lambda observations: plot_layers(layer_maps(study, observations)),
    )
    if study.settings.layers:
        return [detail]
    if study.settings.mean:
        return [picture("mean", _MEAN, mean), detail]
    overview = picture("heads", _OVERVIEW, lambda observations: plot_overview(study, observations))
    return [picture("mean", _MEAN, mean), overview, detail]


@dataclass(frozen=True)
class Maps:
    """Maps [N, T, T] of one model, the tokens of their rows and columns, and the title of each map."""

    tokens: tuple[str, ...]
    maps: Tensor
    names: tuple[str, ...]


Layer = tuple[str, Sequence[Maps]]
"""A title, and the maps of each model to draw side by side."""


def _names(study: Study, maps: Tensor, prefix: str = "") -> tuple[str, ...]:
    names = ["mean of heads"] if study.settings.mean else [f"head {head + 1}" for head in range(len(maps))]
    return tuple(f"{prefix}{name}" for name in names)


def _pairs(study: Study, observations: list[Observation]) -> list[Layer]:
    """For each layer the compared heads of teacher and student, side by side."""
    layers: list[Layer] = []
    for layer in study.layers(study.subjects[0], (1, -1)):
        logs = [_compared(study, observation)[layer - 1] for observation in observations]
        sides = [
            Maps(observation.tokens, maps.exp(), _names(study, maps, f"{subject.name}, "))
            for subject, observation, maps in zip(study.subjects, observations, logs, strict=True)
        ]
        layers.append((f"layer {layer}: KL(teacher ‖ student) = {fmean(divergences(*logs)):.4g}", sides))
    return layers


def _heads(study: Study, observations: list[Observation]) -> list[Layer]:
    """The heads of each layer of each model."""
    layers: list[Layer] = []
    for subject, observation in zip(study.subjects, observations, strict=True):
        for layer in study.layers(subject, (1, -1)):
            entropy = fmean(entropies(observation.logs[layer - 1]))
            maps = observation.maps(layer)
            title = subject.title(f"layer {layer}, entropy {entropy:.4g} nats")
            layers.append((title, [Maps(observation.tokens, maps, _names(study, maps))]))
    return layers


def _layer_means(study: Study, observations: list[Observation]) -> list[Layer]:
    """For each model the mean over heads of each layer."""
    rows: list[Layer] = []
    for subject, observation in zip(study.subjects, observations, strict=True):
        layers = study.layers(subject)
        maps = torch.stack([observation.maps(layer).mean(dim=0) for layer in layers])
        names = tuple(f"layer {layer}" for layer in layers)
        rows.append((subject.title("mean of heads"), [Maps(observation.tokens, maps, names)]))
    return rows


def plot_layers(layers: Sequence[Layer], columns: int = _COLUMNS) -> "Figure":
    """For each layer its title and the maps of each model: the models side by side, on one colour scale per layer."""
    every = [maps for _, models in layers for maps in models]
    sides = max(len(models) for _, models in layers)
    columns = min(max(1, columns // sides), max(len(model.maps) for model in every))
    longest = max(len(model.tokens) for model in every)
    size = min((PAGE - _COLOURBAR - 0.7) / (sides * columns), max(1.6, 0.12 + longest * 0.14), 6.2)
    rows = [max(math.ceil(len(model.maps) / columns) for model in models) for _, models in layers]
    labels = min(1.4, 0.2 + 0.065 * max(len(token) for model in every for token in model.tokens))
    lines = max(_wrap(name, size).count("\n") for model in every for name in model.names)
    heights = [
        count * (size + 0.25 + lines * _LINE) + labels + (0.45 if title else 0.1)
        for count, (title, _) in zip(rows, layers, strict=True)
    ]
    figure = new_figure(sides * (columns * size + labels) + _COLOURBAR, sum(heights))
    parts = figure.subfigures(len(layers), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, (title, models), count in zip(parts, layers, rows, strict=True):
        if title:
            part.suptitle(title, fontsize=10)
        _draw_layer(part, models, (count, columns), size)
    return figure


def _draw_layer(part: Any, models: Sequence[Maps], grid: tuple[int, int], size: float) -> None:
    from matplotlib.colors import PowerNorm

    rows, columns = grid
    # An empty column separates the models.
    widths = [*([1.0] * columns), *(len(models) - 1) * [0.08, *([1.0] * columns)]]
    axes = part.subplots(rows, len(widths), squeeze=False, width_ratios=widths)
    for panel in axes.flat:
        panel.set_axis_off()
    brightest = max(model.maps.max().item() for model in models)
    scale = PowerNorm(0.7, vmin=0.0, vmax=max(brightest, 1e-6))
    for index, model in enumerate(models):
        edge = len(model.tokens) - 0.5
        for number, (weights, name) in enumerate(zip(model.maps, model.names, strict=True)):
            row, column = divmod(number, columns)
            panel = axes[row, index * (columns + 1) + column]
            panel.set_axis_on()
            pixels = shrink(weights, _MAX_PIXELS).numpy()
            image = panel.imshow(pixels, norm=scale, cmap=WEIGHTS, extent=(-0.5, edge, edge, -0.5))
            style_axes(panel)
            panel.set_title(_wrap(name, size), fontsize=8, pad=3)
            below = size if number + columns >= len(model.maps) else 0.0
            label_tokens(panel, model.tokens, rows=size if column == 0 else 0.0, columns=below)
    add_colourbar(part, image, axes, "attention from row to column")


def _wrap(title: str, size: float) -> str:
    """The title of a map, in lines that are not wider than the map."""
    return textwrap.fill(title, width=max(12, int(size / _CHARACTER)), break_on_hyphens=False)


def plot_overview(study: Study, observations: Sequence[Observation]) -> "Figure":
    """All heads of all layers of each model as small maps, a column per layer; each map has its own colour scale."""
    heads = [len(observation.logs[0]) for observation in observations]
    depth = max(len(observation.logs) for observation in observations)
    size = min((PAGE - 0.5) / depth, 1.4)
    figure = new_figure(depth * size + 0.5, sum(heads) * size + 0.6 * len(heads))
    panels = figure.subplots(len(heads), 1, squeeze=False, height_ratios=heads)[:, 0]
    step = _TILE + _GAP
    for panel, subject, observation in zip(panels, study.subjects, observations, strict=True):
        rows, columns = len(observation.logs[0]), len(observation.logs)
        panel.imshow(_mosaic(observation), cmap=WEIGHTS, vmin=0.0, vmax=1.0, interpolation="nearest")
        panel.set_xlim(0, depth * step)
        panel.set_xticks([(layer + 0.5) * step for layer in range(columns)], range(1, columns + 1))
        panel.set_yticks([(head + 0.5) * step for head in range(rows)], range(1, rows + 1))
        panel.xaxis.tick_top()
        panel.xaxis.set_label_position("top")
        style_axes(panel, "layer", "head", subject.name)
        panel.set_frame_on(False)
    return figure


def _mosaic(observation: Observation) -> Any:
    """Maps as tiles of one image, each scaled to its maximum; gaps are transparent."""
    step = _TILE + _GAP
    image = torch.full((len(observation.logs[0]) * step, len(observation.logs) * step), float("nan"))
    for column in range(len(observation.logs)):
        small = shrink(observation.maps(column + 1), _TILE)
        for row, weights in enumerate(F.interpolate(small[None], size=(_TILE, _TILE), mode="nearest-exact")[0]):
            top, left = row * step + _GAP // 2, column * step + _GAP // 2
            # The brightest pixels of a map are often few ([SEP]); the root keeps the others visible.
            tile = (weights / weights.max().clamp(min=1e-12)).sqrt()
            image[top : top + _TILE, left : left + _TILE] = tile
    return image.numpy()


def shrink(maps: Tensor, limit: int) -> Tensor:
    """Average neighbouring tokens of maps [..., T, T] so that at most ``limit`` rows and columns remain."""
    if maps.shape[-1] <= limit:
        return maps
    small: Tensor = F.adaptive_avg_pool2d(maps.reshape(-1, 1, *maps.shape[-2:]), limit)
    return small.reshape(*maps.shape[:-2], limit, limit)
