"""Attention maps for the texts of a study: the mean of a model, all heads, and chosen layers."""

from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from lightbert.analysis.plots.maps import Layer, Maps, plot_layers, plot_means, plot_overview, tile
from lightbert.analysis.section import Picture, Section, Table
from lightbert.analysis.study.divergence import divergences
from lightbert.analysis.study.observation import Observation, entropies, log_mean
from lightbert.analysis.study.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Draw = Callable[[list[Observation]], "Figure"]

_SUMMARY = (
    "A row of a map shows how much a token attends to every token of the text, in columns; a row sums to one. A strong "
    "diagonal is attention to neighbours, a strong column a token that all others attend to, often [CLS] or [SEP]."
)


def attention_section(study: Study) -> Section:
    """Draw the maps; the metrics are the entropy of each layer, or with a teacher KL(teacher ‖ student)."""
    study.check_drawn("attention")
    texts = [_describe_text(study, text) for text in range(len(study.texts.drawn))]
    compared = study.shared_heads is not None
    names = ("kl",) if compared else tuple(f"{each.prefix}entropy" for each in study.subjects)
    values = {name: _by_layer([text[name] for text in texts]) for name in names}
    depth = max(len(each) for each in values.values())
    columns = ("KL",) if compared else tuple(each.title("entropy") for each in study.subjects)
    return Section(
        "attention",
        "Attention maps",
        _SUMMARY,
        tuple(picture for text in range(len(texts)) for picture in _pictures(study, text)),
        (
            Table(
                "KL(teacher ‖ student) by layer" if compared else "Entropy in nats by layer",
                ("layer", *columns),
                [
                    (str(layer + 1), *(each[layer] if layer < len(each) else None for each in values.values()))
                    for layer in range(depth)
                ],
            ),
        ),
        {f"{name}_{layer}": value for name, each in values.items() for layer, value in enumerate(each, start=1)},
        {"texts": texts},
    )


def _describe_text(study: Study, text: int) -> dict[str, Any]:
    """The tokens of a text, and the entropy or divergence of each layer and head."""
    seen = [study.observe(which, text) for which in range(len(study.subjects))]
    found: dict[str, Any] = {"tokens": list(seen[-1].tokens)}
    if study.shared_heads is not None:
        logs = zip(*(_compared(study, each) for each in seen), strict=True)
        return found | {"kl": [divergences(*pair) for pair in logs]}
    for subject, each in zip(study.subjects, seen, strict=True):
        found[f"{subject.prefix}entropy"] = [entropies(_shown(study, logs)) for logs in each.logs]
    return found


def _by_layer(texts: list[list[list[float]]]) -> list[float]:
    """The mean over texts and heads of each layer."""
    return [fmean(fmean(heads) for heads in layers) for layers in zip(*texts, strict=True)]


def _shown(study: Study, logs: torch.Tensor) -> torch.Tensor:
    return log_mean(logs) if study.settings.mean else logs


def _compared(study: Study, seen: Observation) -> list[torch.Tensor]:
    """The log maps of each layer that are compared with those of the other model."""
    kept = [logs[: study.shared_heads] if study.shared_heads else logs for logs in seen.logs]
    return [_shown(study, logs) for logs in kept]


def _pictures(study: Study, text: int) -> list[Picture]:
    chosen = [_draw_layers(study, text)]
    if study.settings.layers:
        pictures = chosen
    elif study.settings.mean:
        pictures = [_draw_means(study, text), *chosen]
    else:
        pictures = [_draw_means(study, text), _draw_overview(study, text), *chosen]
    if len(study.texts.drawn) == 1:
        return pictures
    return [Picture(f"{each.name}-{text + 1}", f"Text {text + 1}. {each.caption}", each.draw) for each in pictures]


def _observations(study: Study, text: int) -> list[Observation]:
    return [study.observe(which, text) for which in range(len(study.subjects))]


def _picture(name: str, caption: str, study: Study, text: int, draw: _Draw) -> Picture:
    return Picture(name, caption, lambda: draw(_observations(study, text)))


def _draw_means(study: Study, text: int) -> Picture:
    def draw(seen: list[Observation]) -> "Figure":
        title = "mean of layers and heads"
        return plot_means(
            [
                Maps("", each.tokens, each.mean_map()[None], (subject.title(title),))
                for subject, each in zip(study.subjects, seen, strict=True)
            ]
        )

    caption = (
        "The mean over all layers and heads, as in ConvBERT Fig. 2 and 6. The stronger the diagonal, the more of the "
        "model's attention is local."
    )
    return _picture("mean", caption, study, text, draw)


def _draw_overview(study: Study, text: int) -> Picture:
    def draw(seen: list[Observation]) -> "Figure":
        return plot_overview(
            [
                (subject.name, [tile(each.maps(layer + 1)) for layer in range(len(each.logs))])
                for subject, each in zip(study.subjects, seen, strict=True)
            ]
        )

    caption = (
        "Every head of every layer; each map has its own colour scale. Convolution heads have no map. Diagonals are "
        "local heads, vertical lines are heads that attend to one token; maps that look alike are redundant."
    )
    return _picture("heads", caption, study, text, draw)


def _draw_layers(study: Study, text: int) -> Picture:
    """Chosen layers with token labels: with a teacher both models, else the heads, or with ``mean`` a map per layer."""
    draw = _pairs if study.shared_heads is not None else _layer_means if study.settings.mean else _heads
    default = (1, -1) if draw is not _layer_means else range(1, study.subjects[-1].depth + 1)
    layers = study.layers(study.subjects[-1], default=default)
    caption = f"Layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))} in detail"
    scale = "." if draw is _layer_means else ", on one colour scale per layer."
    return _picture("layers", caption + scale, study, text, lambda seen: plot_layers(draw(study, seen)))


def _pairs(study: Study, seen: list[Observation]) -> list[Layer]:
    """For each layer the compared heads of teacher and student, side by side."""
    found: list[Layer] = []
    for layer in study.layers(study.subjects[0], default=(1, -1)):
        logs = [_compared(study, each)[layer - 1] for each in seen]
        title = f"layer {layer}: KL(teacher ‖ student) = {fmean(divergences(*logs)):.4g}"
        sides = zip(study.subjects, seen, logs, strict=True)
        found.append(
            (title, [Maps(subject.name, each.tokens, maps.exp(), _names(study, maps)) for subject, each, maps in sides])
        )
    return found


def _heads(study: Study, seen: list[Observation]) -> list[Layer]:
    """The heads of each layer of each model."""
    return [
        (
            subject.title(f"layer {layer}, entropy {fmean(entropies(each.logs[layer - 1])):.4g} nats"),
            [Maps("", each.tokens, each.maps(layer), _names(study, each.logs[layer - 1]))],
        )
        for subject, each in zip(study.subjects, seen, strict=True)
        for layer in study.layers(subject, default=(1, -1))
    ]


def _layer_means(study: Study, seen: list[Observation]) -> list[Layer]:
    """For each model the mean over heads of each layer."""
    found: list[Layer] = []
    for subject, each in zip(study.subjects, seen, strict=True):
        layers = study.layers(subject, default=range(1, subject.depth + 1))
        maps = torch.stack([each.maps(layer).mean(dim=0) for layer in layers])
        names = tuple(f"layer {layer}" for layer in layers)
        found.append((subject.title("mean of heads"), [Maps("", each.tokens, maps, names)]))
    return found


def _names(study: Study, maps: torch.Tensor) -> tuple[str, ...]:
    return ("mean of heads",) if study.settings.mean else tuple(f"head {at + 1}" for at in range(len(maps)))
