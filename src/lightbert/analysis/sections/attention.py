"""Attention maps for the texts of a study: the mean of a model, all heads, and chosen layers."""

from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from lightbert.analysis.plots.maps import Maps, plot_layers, plot_means, plot_overview, tile
from lightbert.analysis.section import Picture, Section, Table
from lightbert.analysis.study.divergence import divergences
from lightbert.analysis.study.observation import Observation, entropies, log_mean
from lightbert.analysis.study.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Draw = Callable[[list[Observation]], "Figure"]

_SUMMARY = (
    "A row of a map shows how much a token attends to every token of the text, in columns; a row sums to one. A dark "
    "diagonal is attention to neighbours, a dark column a token that all others attend to, often [CLS] or [SEP]."
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
        "The mean over all layers and heads, as in ConvBERT Fig. 2 and 6. The darker the diagonal, the more of the "
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
    every = study.settings.mean and study.shared_heads is None
    rows: list[list[int]] = [
        study.layers(each, default=range(1, each.depth + 1) if every else (1, -1)) for each in study.subjects
    ]

    def maps(which: int, seen: Observation, layer: int) -> Maps:
        logs = seen.logs[layer - 1]
        if study.shared_heads is not None:
            logs = _compared(study, seen)[layer - 1]
        shown = _shown(study, logs).exp()
        names = ("mean of heads",) if study.settings.mean else tuple(f"head {at + 1}" for at in range(len(shown)))
        side = study.subjects[which].name if study.shared_heads is not None else ""
        return Maps(side, seen.tokens, shown, names)

    def draw(seen: list[Observation]) -> "Figure":
        if study.shared_heads is not None:
            # The same heads of both models, side by side.
            return plot_layers(
                [
                    (_title_with_divergence(study, seen, layer), [maps(which, seen[which], layer) for which in (0, 1)])
                    for layer in rows[0]
                ]
            )
        return plot_layers(
            [
                (_title_with_entropy(study, which, seen[which], layer), [maps(which, seen[which], layer)])
                for which, layers in enumerate(rows)
                for layer in layers
            ]
        )

    numbers = ", ".join(map(str, rows[-1]))
    caption = f"Layer{'s' * (len(rows[-1]) > 1)} {numbers} in detail, on one colour scale per layer."
    return _picture("layers", caption, study, text, draw)


def _title_with_divergence(study: Study, seen: list[Observation], layer: int) -> str:
    teacher, student = (_compared(study, each)[layer - 1] for each in seen)
    return f"layer {layer}: KL(teacher ‖ student) = {fmean(divergences(teacher, student)):.4g}"


def _title_with_entropy(study: Study, which: int, seen: Observation, layer: int) -> str:
    entropy = fmean(entropies(_shown(study, seen.logs[layer - 1])))
    return study.subjects[which].title(f"layer {layer}, entropy {entropy:.4g} nats")
