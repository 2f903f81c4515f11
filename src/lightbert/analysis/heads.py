"""Attention heads over many texts: diagonal concentration (ConvBERT §6.5), locality, entropy, redundancy."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lightbert.analysis.figure import MUTED, PAGE, POSITIVE, SMALL, WEIGHTS, add_colourbar, new_figure, style_axes
from lightbert.analysis.report import Cell, NotApplicableError, Picture, Section, Table, file_name
from lightbert.analysis.study import Observation, Study, Subject
from lightbert.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RADIUS = 4
"""Tokens at this distance or less are local (ConvBERT §6.5)."""
FURTHEST = 8
"""The largest distance in the profile of a head."""
PAPER = {"BERT in the paper": 0.941, "ConvBERT in the paper": 0.608}
"""ConvBERT Table 8, on MRPC."""

_MEANINGS = {
    "locality": f"share of attention within {RADIUS} tokens",
    "distance": "mean distance in tokens",
    "entropy": "entropy in nats",
    "special": "share of attention on [CLS] and [SEP]",
    "redundancy": "largest overlap with another head of the layer",
}
_CELL = 0.42
_MAX_LAYER_LABELS = 24


@dataclass(frozen=True)
class HeadStatistics:
    """Statistics over texts; matrices are [L, H] and means over all tokens."""

    texts: int
    tokens: int
    concentrations: tuple[float, ...]
    """C of the mean map over layers and heads, for each text of more than RADIUS + 1 tokens."""
    uniform: tuple[float, ...]
    """C of uniform attention for the same texts."""
    by_layer: Tensor
    """C of the mean map over the heads of a layer, mean over texts: [L]."""
    entropy: Tensor
    """In nats."""
    distance: Tensor
    """The mean distance in tokens."""
    special: Tensor
    """The share of attention on [CLS] and [SEP]."""
    profile: Tensor
    """The share of attention by offset from -FURTHEST to FURTHEST: [L, H, 2·FURTHEST + 1]."""
    overlap: Tensor
    """The overlap of each pair of heads, 1 if they attend alike: [L·H, L·H]."""

    @property
    def concentration(self) -> float:
        """The diagonal concentration C as in ConvBERT Table 8: per text, then the mean; nan if all are too short."""
        return fmean(self.concentrations) if self.concentrations else float("nan")

    @property
    def local(self) -> Tensor:
        """The share of attention on tokens within RADIUS."""
        return self.profile[..., FURTHEST - RADIUS : FURTHEST + RADIUS + 1].sum(dim=-1).clamp(max=1.0)

    @property
    def pooled(self) -> float:
        """C of all texts together: the sum of all local weights over the sum of all others."""
        near = self.local.mean().item()
        return near / (1 - near) if near < 1 else float("nan")

    @property
    def by_head(self) -> Tensor:
        """C of each head over all texts together [L, H]; the C of one head and text can be arbitrarily large."""
        return self.local / (1 - self.local).clamp(min=1e-12)

    @property
    def redundancy(self) -> Tensor:
        """The largest overlap of each head with another head of its layer: [L, H]; 0 for a single head."""
        layers, heads = self.local.shape
        blocks = self.overlap.unflatten(0, (layers, heads)).unflatten(2, (layers, heads))
        own = blocks[torch.arange(layers), :, torch.arange(layers)]  # [L, H, H]
        others: Tensor = own.masked_fill(torch.eye(heads, dtype=torch.bool), 0.0)
        return others.amax(dim=-1)

    @property
    def matrices(self) -> dict[str, Tensor]:
        """The five statistics of each head by name."""
        return dict(
            zip(_MEANINGS, (self.local, self.distance, self.entropy, self.special, self.redundancy), strict=True)
        )


def head_statistics(observations: Iterable[Observation]) -> HeadStatistics:
    """Compute the statistics of a model from its observations, of which only one is kept in memory."""
    sums: dict[str, Tensor] = {}
    texts = tokens = 0
    concentrations, uniform, by_layer = [], [], []
    for observation in observations:
        texts += 1
        length = observation.logs[0].shape[-1]
        tokens += length
        layers = [_sums(logs) for logs in observation.logs]
        for name in layers[0]:
            total = torch.stack([layer[name] for layer in layers]).double()
            sums[name] = sums[name] + total if name in sums else total
        # Bhattacharyya's coefficient of two distributions is the inner product of their square roots.
        roots = torch.cat([(0.5 * logs).exp().flatten(1) for logs in observation.logs])
        overlap = (roots @ roots.T).double()
        sums["overlap"] = sums["overlap"] + overlap if texts > 1 else overlap
        # In shorter texts every token is local.
        if length > RADIUS + 1:
            means = torch.stack([logs.exp().mean(dim=0) for logs in observation.logs])
            by_layer.append(concentration(means))
            concentrations.append(concentration(means.mean(dim=0)).item())
            uniform.append(concentration(torch.ones(length, length)).item())
    if not texts:
        raise InputError("none of the texts has tokens; give sentences in the language of the model")
    shares = {name: total / tokens for name, total in sums.items()}
    return HeadStatistics(
        texts,
        tokens,
        tuple(concentrations),
        tuple(uniform),
        torch.stack(by_layer).mean(dim=0) if by_layer else torch.full((len(shares["entropy"]),), float("nan")),
        **shares | {"overlap": shares["overlap"].clamp(max=1.0)},
    )


def _sums(logs: Tensor) -> dict[str, Tensor]:
    """Sums over the rows of the maps of a layer [H, T, T]: [H], and by offset [H, 2·FURTHEST + 1]."""
    maps, places = logs.exp(), torch.arange(logs.shape[-1])
    offsets = range(-FURTHEST, FURTHEST + 1)
    return {
        "entropy": torch.special.entr(maps).sum(dim=(-2, -1)),
        "distance": (maps * (places[:, None] - places).abs()).sum(dim=(-2, -1)),
        "special": maps[..., 0].sum(dim=-1) + maps[..., -1].sum(dim=-1),
        "profile": torch.stack([maps.diagonal(offset, -2, -1).sum(dim=-1) for offset in offsets], dim=-1),
    }


def concentration(weights: Tensor) -> Tensor:
    """The diagonal concentration of maps: Σ_{|i-j| ≤ 4} M / Σ_{|i-j| > 4} M; [..., T, T] -> [...] (ConvBERT §6.5)."""
    places = torch.arange(weights.shape[-1])
    near = weights * ((places[:, None] - places).abs() <= RADIUS)
    return near.sum(dim=(-2, -1)) / (weights - near).sum(dim=(-2, -1))


def _statistics(study: Study, name: str) -> list[tuple[Subject, HeadStatistics]]:
    """The statistics of each subject, which several analyses of a study share."""
    if not study.texts.measured:
        raise NotApplicableError(f"the analysis '{name}' requires texts; add --data FILE or --text TEXT")
    study.check_maps(name)
    if "heads" not in study.shared:
        study.shared["heads"] = [head_statistics(study.observations(which)) for which in range(len(study.subjects))]
    return [*zip(study.subjects, study.shared["heads"], strict=True)]


def concentration_section(study: Study) -> Section:
    """C as in the paper: the mean map over layers and heads, C per text, then the mean over texts."""
    models = _statistics(study, "concentration")
    if not any(statistics.concentrations for _, statistics in models):
        raise NotApplicableError(
            f"the analysis 'concentration' requires texts of more than {RADIUS + 1} tokens; give longer texts"
        )
    first = models[0][1]
    uniform = fmean(first.uniform)
    metrics: dict[str, float] = {}
    rows: list[tuple[Cell, ...]] = []
    for subject, statistics in models:
        metrics[f"{subject.prefix}concentration"] = statistics.concentration
        metrics[f"{subject.prefix}concentration_pooled"] = statistics.pooled
        for layer, value in enumerate(statistics.by_layer.tolist(), start=1):
            metrics[f"{subject.prefix}concentration_{layer}"] = value
        length = statistics.tokens / statistics.texts
        name = subject.name or "this model"
        rows.append((name, statistics.concentration, statistics.pooled, f"{statistics.texts:,}", length))
    rows.append(("uniform attention", uniform, None, f"{len(first.uniform):,}", None))
    rows += [(name, value, None, "MRPC", None) for name, value in PAPER.items()]
    notes = study.texts.notes
    if short := first.texts - len(first.concentrations):
        left_out = f"{short:,} texts of at most {RADIUS + 1} tokens have no C and are left out of its mean."
        notes = (*notes, left_out)
    return Section(
        "concentration",
        "Diagonal concentration",
        f"C = Σ M(|i−j| ≤ {RADIUS}) / Σ M(|i−j| > {RADIUS}): attention to tokens at most {RADIUS} places away over "
        "attention to all others (ConvBERT §6.5). It depends on the length of the texts, so compare models on the same "
        "texts, and with uniform attention.",
        (
            Picture(
                "concentration-layers",
                "C of the mean map of each layer, with the paper's figures for whole models. Uniform attention to the "
                "same texts has the C of the line 'uniform'; the shorter the texts, the higher it is.",
                lambda: plot_layer_values(
                    [(subject.name, statistics.by_layer) for subject, statistics in models],
                    {**PAPER, "uniform attention": uniform},
                    "C",
                ),
            ),
            Picture(
                "concentration-heads",
                "C of each layer and head over all texts together, on a logarithmic colour scale. A head above 1 "
                "attends more to its neighbourhood than to the rest of the text.",
                lambda: plot_grids(
                    [(subject.title("C"), statistics.by_head) for subject, statistics in models], logarithmic=True
                ),
            ),
        ),
        (Table("Diagonal concentration", ("model", "C", "C pooled", "texts", "tokens per text"), rows),),
        metrics,
        {
            subject.name or "model": {
                "texts": statistics.texts,
                "concentration": statistics.concentration,
                "pooled": statistics.pooled,
                "layers": statistics.by_layer.tolist(),
                "heads": statistics.by_head.tolist(),
            }
            for subject, statistics in models
        },
        notes,
    )


def heads_section(study: Study) -> Section:
    """Compute five statistics of each head, its attention by distance, and the overlap of all pairs of heads."""
    models = _statistics(study, "heads")
    pictures, tables, details = [], [], {}
    metrics: dict[str, float] = {}
    for subject, statistics in models:
        matrices = statistics.matrices
        pictures.append(
            Picture(
                file_name(f"statistics {subject.name}"),
                "Five statistics of each layer and head. Local heads have a high locality, a short distance and a low "
                "entropy; a head that mostly attends to [CLS] and [SEP] hardly mixes tokens; a head with a redundancy "
                "near 1 attends as another head of its layer does.",
                partial(plot_grids, [(subject.title(name), values) for name, values in matrices.items()]),
            )
        )
        by_layer = torch.stack([values.mean(dim=1) for values in matrices.values()], dim=1).tolist()
        rows = [(str(layer), *values) for layer, values in enumerate(by_layer, start=1)]
        tables.append(Table(subject.title("mean over the heads of a layer"), ("layer", *matrices), rows))
        metrics |= {f"{subject.prefix}{name}": values.mean().item() for name, values in matrices.items()}
        details[subject.name or "model"] = {
            **{name: values.tolist() for name, values in matrices.items()},
            "by_offset": statistics.profile.tolist(),
            "overlap": statistics.overlap.tolist(),
            "meaning": _MEANINGS,
        }
    return Section(
        "heads",
        "Locality and redundancy of heads",
        "Which heads attend to neighbours, and which do what another head does already: the heads that a convolution "
        "can replace (ConvBERT §3.3).",
        (
            *pictures,
            Picture(
                "distance",
                "Attention by the offset of the attended token, a line per head, grouped by layer. A strong cell at -1 "
                "or +1 is a head for the previous or the next token, as the kernels of a convolution.",
                lambda: plot_profiles(models),
            ),
            Picture(
                "overlap",
                "The overlap of each pair of heads: 1 if they distribute their attention alike, 0 if they attend to "
                "different tokens (Bhattacharyya's coefficient, mean over tokens). Strong squares on the diagonal are "
                "layers of redundant heads.",
                lambda: plot_overlap(models),
            ),
        ),
        tuple(tables),
        metrics,
        details,
        study.texts.notes,
    )


def plot_grids(grids: Sequence[tuple[str, Tensor]], *, logarithmic: bool = False) -> "Figure":
    """Numbers per layer and head [L, H] as colours and text, below titles.

    Grids of the same title, after the name of the model, share a colour scale.
    """
    from matplotlib.colors import LogNorm, Normalize

    columns = min(2, len(grids))
    rows = -(-len(grids) // columns)
    depth, heads = (max(values.shape[side] for _, values in grids) for side in (0, 1))
    width = min(PAGE, columns * (max(depth * _CELL, 1.6) + 0.6))
    figure = new_figure(width, rows * (max(heads * 0.24, 0.4) + 0.65))
    panels = figure.subplots(rows, columns, squeeze=False)
    for panel in panels.flat[len(grids) :]:
        panel.set_axis_off()
    ranges: dict[str, list[float]] = {}
    for title, values in grids:
        ranges.setdefault(title.rpartition(": ")[2], []).extend((values.min().item(), values.max().item()))
    for panel, (title, values) in zip(panels.flat, grids, strict=False):
        limits = ranges[title.rpartition(": ")[2]]
        low, high = min(limits), max(limits)
        scale = LogNorm(max(low, 1e-3), max(high, 2e-3)) if logarithmic else Normalize(min(low, 0.0), high)
        _draw_grid(panel, title, values, scale, cell=(width / columns - 0.6) / len(values))
    return figure


def _draw_grid(panel: Any, title: str, values: Tensor, scale: Any, cell: float) -> None:
    panel.imshow(values.T.numpy(), cmap=WEIGHTS, norm=scale, aspect="auto")
    layers, heads = values.shape
    step = 1 + (layers - 1) // _MAX_LAYER_LABELS
    panel.set_xticks(range(0, layers, step), range(1, layers + 1, step))
    panel.set_yticks(range(heads), range(1, heads + 1))
    style_axes(panel, "layer", "head", title)
    if cell < 0.2:
        return
    style = {"ha": "center", "va": "center", "fontsize": min(SMALL, cell * 72 / 3.2)}
    for layer, row in enumerate(values.tolist()):
        for head, value in enumerate(row):
            panel.text(layer, head, _short(value), color="white" if scale(value) > 0.6 else "black", **style)


def _short(value: float) -> str:
    """At most four characters."""
    if value >= 999.5:
        return ">999"
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"[1:]


def plot_layer_values(models: Sequence[tuple[str, Tensor]], lines: dict[str, float], label: str) -> "Figure":
    """A value per layer of each model [L] on a logarithmic scale; horizontal lines are values to compare with."""
    figure = new_figure(7.0, 2.8)
    panel = figure.subplots()
    layers = range(1, max(len(values) for _, values in models) + 1)
    for (name, values), colour in zip(models, (POSITIVE, "#d9822b"), strict=False):
        panel.plot(layers[: len(values)], values.numpy(), "o-", color=colour, markersize=4, label=name or "by layer")
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter("")
    for (name, value), style in zip(lines.items(), ("-", "--", ":", "-."), strict=False):
        panel.axhline(value, color=MUTED, linewidth=1, linestyle=style, label=f"{name}: {value:.3g}")
    panel.set_xticks(layers)
    panel.set_xlabel("layer", fontsize=8)
    panel.set_ylabel(label, fontsize=8)
    panel.tick_params(labelsize=SMALL)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def plot_profiles(models: Sequence[tuple[Subject, HeadStatistics]]) -> "Figure":
    """Attention by offset: a row per head, grouped by layer."""
    from matplotlib.colors import PowerNorm

    rows = max(len(statistics.overlap) for _, statistics in models)
    scale = PowerNorm(0.6, vmin=0.0, vmax=max(statistics.profile.max().item() for _, statistics in models))
    size = (min(PAGE, 4.2 * len(models)), min(9.0, max(2.4, rows * 0.085)) + 0.7)

    def draw(panel: Any, statistics: HeadStatistics, layers: Sequence[float]) -> Any:
        panel.set_xticks(
            range(2 * FURTHEST + 1), [f"{offset:+d}" if offset else "0" for offset in range(-FURTHEST, FURTHEST + 1)]
        )
        weights = statistics.profile.flatten(0, 1).numpy()
        return panel.imshow(weights, cmap=WEIGHTS, norm=scale, aspect="auto", interpolation="nearest")

    return _plot_by_layer(models, size, draw, "offset of the attended token")


def plot_overlap(models: Sequence[tuple[Subject, HeadStatistics]]) -> "Figure":
    """The overlap of each pair of heads, grouped by layer."""
    size = min(PAGE / len(models) - 0.4, 5.2)

    def draw(panel: Any, statistics: HeadStatistics, layers: Sequence[float]) -> Any:
        panel.set_xticks(layers, range(1, len(layers) + 1))
        heads = statistics.local.shape[1]
        for layer in range(1, len(layers)):
            panel.axvline(layer * heads - 0.5, color=MUTED, linewidth=0.4)
        return panel.imshow(statistics.overlap.numpy(), cmap=WEIGHTS, vmin=0.0, vmax=1.0, interpolation="nearest")

    return _plot_by_layer(models, (len(models) * (size + 0.3) + 0.6, size + 0.5), draw, "layer", "overlap")


def _plot_by_layer(
    models: Sequence[tuple[Subject, HeadStatistics]],
    size: tuple[float, float],
    draw: Callable[[Any, HeadStatistics, Sequence[float]], Any],
    label: str,
    scale_label: str = "",
) -> "Figure":
    """A panel per model with a row per head; lines separate the layers, which are labelled in their middle."""
    figure = new_figure(*size)
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for panel, (subject, statistics) in zip(panels, models, strict=True):
        layers, heads = statistics.local.shape
        middles = [layer * heads + (heads - 1) / 2 for layer in range(layers)]
        image = draw(panel, statistics, middles)
        panel.set_yticks(middles, range(1, layers + 1))
        for layer in range(1, layers):
            panel.axhline(layer * heads - 0.5, color=MUTED, linewidth=0.4)
        style_axes(panel, label, "layer", subject.name)
    add_colourbar(figure, image, list(panels), scale_label)
    return figure
