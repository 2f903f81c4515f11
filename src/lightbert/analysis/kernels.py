"""Convolution kernels: dynamic ones per token (ConvBERT Fig. 1), fixed per head, depthwise per channel."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lightbert.analysis.figure import (
    MUTED,
    NEGATIVE,
    PAGE,
    POSITIVE,
    SIGNED,
    SMALL,
    WEIGHTS,
    add_colourbar,
    label_tokens,
    new_figure,
    style_axes,
)
from lightbert.analysis.report import NotApplicableError, Picture, Section, Table, file_name
from lightbert.analysis.study import RowEncoder, Study
from lightbert.data.masking import word_parts
from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.attention import Attention, ConvolutionalProjection, SelfAttention
from lightbert.nn.convolution import Depthwise, DynamicConvolution, SeparableConvolution
from lightbert.nn.local import LocalAttention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_OCCURRENCES = 4
_MAX_WORDS = 3
_MAX_LONG_TITLES = 8


def dynamic_kernels_section(study: Study) -> Section:
    """Draw the kernels of the subjects that generate them, and compare those of the same word."""
    generating = [
        which
        for which, subject in enumerate(study.subjects)
        if any(isinstance(part, DynamicConvolution | LocalAttention) for part in subject.model.modules())
    ]
    if not generating:
        raise NotApplicableError(
            "the model has no dynamic kernels: only mixed attention (ConvBERT) generates them per token"
        )
    study.check_drawn("dynamic-kernels")
    pictures: list[Picture] = []
    tables, metrics, details = [], {}, {}
    texts = range(len(study.texts.drawn))
    for which in generating:
        subject = study.subjects[which]
        words = find_words([study.row(which, text) for text in texts], study.encoders[which], study.settings.words)
        part = f"-{which + 1}" if len(study.subjects) > 1 else ""
        prefix = f"{subject.name}. " if subject.name else ""
        for word, places in words.items():
            caption = (
                f"{prefix}The kernels of “{word}” in up to {_MAX_OCCURRENCES} places: bars are the mean over the "
                "convolution heads, dots the single heads; the labels are the tokens that the kernel weights. "
                "Different bars for one word show that the kernel depends on the context (ConvBERT Fig. 1c)."
            )
            pictures.append(Picture(f"word-{file_name(word)}{part}", caption, partial(plot_word, study, which, places)))
        for text in texts:
            caption = (
                f"{prefix}The kernels of each token, in a row: the weights of the tokens around it, from the left to "
                "the right of the window. A strong column is a kernel that all tokens share, a varied one depends on "
                "the token."
            )
            number = f"-{text + 1}" if len(texts) > 1 else ""
            pictures.append(Picture(f"kernels{part}{number}", caption, partial(plot_dynamic, study, which, text)))
        overlaps = _overlaps(study, which, words)
        columns = ("layer", *(f"“{word}”" for word in overlaps if word), "any two tokens")
        rows = [(str(layer), *values) for layer, values in enumerate(zip(*overlaps.values(), strict=True), start=1)]
        tables.append(Table(subject.title("overlap of kernels"), columns, rows))
        for word, layers in overlaps.items():
            metrics[f"{subject.prefix}kernel_overlap{'_' * bool(word)}{word}"] = sum(layers) / len(layers)
        details[subject.name or "model"] = {
            "overlap": {word or "any two tokens": layers for word, layers in overlaps.items()}
        }
    return Section(
        "dynamic-kernels",
        "Dynamic kernels",
        "Span-based dynamic convolution generates a kernel for every token from its neighbourhood, so that a word gets "
        "different kernels in different contexts (ConvBERT Fig. 1). The overlap of two kernels is 1 if they are equal.",
        tuple(pictures),
        tuple(tables),
        metrics,
        details,
    )


@dataclass(frozen=True)
class Occurrence:
    """A word in a text: the number of the text, and the place of the word's first token in its row."""

    text: int
    place: int


def find_words(
    rows: Sequence[Sequence[int]], encoder: RowEncoder, words: Sequence[str] = ()
) -> dict[str, list[Occurrence]]:
    """The occurrences of words in rows with special tokens; without `words`, of the most frequent repeated ones."""
    continues = word_parts(encoder.tokenizer).tolist()

    def find(pieces: Sequence[int]) -> list[Occurrence]:
        return [
            Occurrence(text, place)
            for text, row in enumerate(rows)
            for place in range(1, len(row) - len(pieces))
            if pieces and [*row[place : place + len(pieces)]] == pieces and not continues[row[place + len(pieces)]]
        ]

    if words:
        occurrences = {word: find(encoder.pieces(word)) for word in words}
        for word, places in occurrences.items():
            if not places:
                raise InputError(
                    f"the word {word!r} must occur in the texts, but doesn't; give a text that contains it"
                )
        return occurrences
    names = {token: encoder.tokens([token])[0].removeprefix("▁") for row in rows for token in row[1:-1]}
    candidates = [token for token, name in names.items() if name[:1].isalpha() and not continues[token]]
    repeated = {token: places for token in candidates if len(places := find([token])) > 1}
    frequent = Counter({token: len(places) for token, places in repeated.items()}).most_common(_MAX_WORDS)
    return {names[token]: repeated[token] for token, _ in frequent}


def _overlaps(study: Study, which: int, words: dict[str, list[Occurrence]]) -> dict[str, list[float]]:
    """Word -> the overlap of its kernels in each layer; "" -> that of any two tokens."""
    texts = [study.observe(which, text).kernels for text in range(len(study.texts.drawn))]
    layers = range(len(texts[0]))
    overlaps = {
        word: [
            kernel_overlap(torch.stack([texts[at.text][layer][:, at.place] for at in places], dim=1))
            for layer in layers
        ]
        for word, places in words.items()
        if len(places) > 1
    }
    return overlaps | {"": [kernel_overlap(torch.cat([text[layer] for text in texts], dim=1)) for layer in layers]}


def kernel_overlap(kernels: Tensor) -> float:
    """The mean overlap of each pair of kernels [H, N, K], averaged over heads: 1 if they are equal."""
    count = kernels.shape[1]
    rooted = kernels.sqrt()
    total = (rooted @ rooted.transpose(1, 2)).sum(dim=(1, 2)) - kernels.sum(dim=(1, 2))
    return float((total / (count * (count - 1))).mean())


def fixed_kernels_section(study: Study) -> Section:
    """Draw the fixed lightweight convolutions of each layer and head (composite Fig. 2)."""
    models = [(subject, kernels) for subject in study.subjects if (kernels := fixed_kernels(subject.model))]
    if not models:
        raise NotApplicableError(
            "the model has no fixed kernels: only composite attention with a fixed lightweight convolution has them"
        )
    shown = [(subject.name, [kernels[layer - 1] for layer in study.layers(subject)]) for subject, kernels in models]
    largest = max(layer.abs().max().item() for _, kernels in models for layer in kernels)
    return Section(
        "fixed-kernels",
        "Fixed kernels",
        "A fixed lightweight convolution adds one learned weight per offset to the attention scores of a head, for "
        "all tokens alike (composite paper, Eq. 4).",
        (
            Picture(
                "fixed-kernels",
                "The weights of each layer and head by offset, from the left to the right of a token; the dotted line "
                "is the token itself, blue is above zero and red below, and all cells have one scale, up to "
                f"{largest:.3g}. A tall bar "
                "next to the middle is a head for the previous or next token, a slope prefers the past or the future "
                "(composite paper, Fig. 2).",
                lambda: plot_fixed(shown),
            ),
        ),
        tuple(
            Table(
                subject.title("the largest weight of each head, with its offset"),
                ("layer", *(f"head {head + 1}" for head in range(len(kernels[0])))),
                [
                    (str(layer), *(f"{head.max():.3f} at {head.argmax() - head.numel() // 2:+d}" for head in weights))
                    for layer, weights in enumerate(kernels, start=1)
                ],
            )
            for subject, kernels in models
        ),
        details={subject.name or "model": [layer.tolist() for layer in kernels] for subject, kernels in models},
    )


def fixed_kernels(model: Model) -> list[Tensor]:
    """The fixed lightweight convolution of each layer [H, 2R+1] (composite Eq. 4); empty if the model has none."""
    weights = (mixer.fixed for mixer in _mixers(model) if isinstance(mixer, Attention))
    return [weight.detach().float() for weight in weights if weight is not None]


def _mixers(model: Model) -> Iterator[nn.Module]:
    return (block.get_submodule("mixer") for block in model.blocks)


def depthwise_kernels_section(study: Study) -> Section:
    """Draw the depthwise convolutions of each layer, with sorted channels (composite Fig. 3)."""
    convolutions = [
        (subject, use, kernels)
        for subject in study.subjects
        for use, kernels in depthwise_kernels(subject.model).items()
    ]
    if not convolutions:
        raise NotApplicableError("the model has no depthwise kernels: none of its mixers has a depthwise convolution")
    radius = max(kernels[0].shape[1] // 2 for _, _, kernels in convolutions)
    pictures, rows = [], []
    for subject, use, kernels in convolutions:
        caption = (
            f"{subject.title(use)}. Each line is the kernel of a channel, by offset: blue above zero, red below. "
            "Channels are sorted by the weight of the next token minus that of the previous, so that channels for "
            "either are at the ends (composite paper, Fig. 3)."
        )
        layers = [(layer, kernels[layer - 1]) for layer in study.layers(subject)]
        name = file_name(f"depthwise {subject.name} {use}")
        pictures.append(Picture(name, caption, partial(plot_depthwise, layers)))
        # The mean absolute weight at each offset; None beyond the kernel.
        profile = torch.stack([layer.abs().mean(dim=0) for layer in kernels]).mean(dim=0).tolist()
        before = [None] * (radius - len(profile) // 2)
        after = [None] * (2 * radius + 1 - len(before) - len(profile))
        rows.append((subject.title(use), *before, *profile, *after))
    return Section(
        "depthwise-kernels",
        "Depthwise kernels",
        "A depthwise convolution has one kernel per channel. Mixed attention applies it to make keys aware of their "
        "span, composite attention to its values or projections.",
        tuple(pictures),
        (
            Table(
                "the mean absolute weight by offset, over all channels and layers",
                ("kernel", *(f"{offset:+d}" for offset in range(-radius, radius + 1))),
                rows,
            ),
        ),
    )


def depthwise_kernels(model: Model) -> dict[str, list[Tensor]]:
    """What is convolved -> the depthwise kernels of each layer, sorted: [channels, K]."""
    kernels: dict[str, list[Tensor]] = {}
    for mixer in _mixers(model):
        for name, part in mixer.named_modules():
            if isinstance(part, Depthwise):
                match mixer.get_submodule(name.rpartition(".")[0]):
                    case ConvolutionalProjection():
                        use = f"{name.partition('.')[0]} projection"
                    case SeparableConvolution() if isinstance(mixer, SelfAttention) and mixer.depthwise is not None:
                        use = "values of the convolution heads"
                    case SelfAttention() | SeparableConvolution():
                        use = "values"
                    case _:
                        use = "span-aware keys"
                kernels.setdefault(use, []).append(sort_channels(part.weight.detach().float()))
    return kernels


def sort_channels(kernels: Tensor) -> Tensor:
    """Sort kernels [channels, K] by their weight for the next token minus that for the previous (composite Fig. 3)."""
    middle = kernels.shape[1] // 2
    if kernels.shape[1] < 3:
        return kernels[kernels[:, middle].argsort()]
    return kernels[(kernels[:, middle + 1] - kernels[:, middle - 1]).argsort()]


def plot_fixed(models: Sequence[tuple[str, Sequence[Tensor]]]) -> "Figure":
    """The kernels of each layer [H, K] of each model as bars: a row per layer, a column per head, one scale."""
    heads = [len(layers[0]) for _, layers in models]
    depth = max(len(layers) for _, layers in models)
    cell = min((PAGE - 0.7 * len(models)) / sum(heads), 1.9)
    figure = new_figure(sum(heads) * cell + 0.7 * len(models), depth * max(0.42, min(cell * 0.6, 0.8)) + 0.7)
    panels = figure.subplots(1, len(models), squeeze=False, width_ratios=heads)[0]
    largest = max(layer.abs().max().item() for _, layers in models for layer in layers) or 1.0
    for panel, (title, layers), columns in zip(panels, models, heads, strict=True):
        for row, kernels in enumerate(layers):
            for column, kernel in enumerate(kernels):
                _draw_bars(panel, (kernel / largest).tolist(), row, column)
        panel.set_xlim(-0.02, columns - 0.02)
        panel.set_ylim(len(layers), 0)
        panel.set_xticks([head + 0.47 for head in range(columns)], range(1, columns + 1))
        panel.set_yticks([layer + 0.5 for layer in range(len(layers))], range(1, len(layers) + 1))
        panel.xaxis.tick_top()
        panel.xaxis.set_label_position("top")
        style_axes(panel, "head", "layer", title)
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
    figure = new_figure(min(PAGE, len(layers) * 1.6 + 1.2), 4.0)
    panel = figure.subplots()
    # A few outliers would make the others invisible.
    largest = max(values.abs().flatten().quantile(0.995).item() for _, values in layers) or 1.0
    image = _draw_row(panel, layers, cmap=SIGNED, vmin=-largest, vmax=largest)
    panel.set_yticks([])
    panel.set_ylabel(f"{len(layers[0][1])} channels", fontsize=SMALL)
    add_colourbar(figure, image, panel)
    return figure


def plot_dynamic(study: Study, which: int, text: int) -> "Figure":
    """The kernels of a text: a row per head, a column per layer."""
    observation = study.observe(which, text)
    layers = [(layer, observation.kernels[layer - 1]) for layer in study.layers(study.subjects[which])]
    heads, count = len(layers[0][1]), len(layers)
    height = min(6.5, max(1.2, len(observation.tokens) * 0.115))
    figure = new_figure(count * max(0.42, min(1.1, (PAGE - 1.6) / count)) + 1.6, heads * (height + 0.3) + 0.6)
    panels = figure.subplots(heads, 1, squeeze=False)[:, 0]
    brightest = max(kernels.max().item() for _, kernels in layers)
    for head, panel in enumerate(panels):
        label_tokens(panel, observation.tokens, rows=height)
        kernels = [(layer, values[head]) for layer, values in layers]
        image = _draw_row(panel, kernels, cmap=WEIGHTS, vmin=0.0, vmax=brightest)
        panel.set_ylabel(f"head {head + 1}", fontsize=8)
    add_colourbar(figure, image, panels)
    return figure


def plot_word(study: Study, which: int, places: Sequence[Occurrence]) -> "Figure":
    """A row per layer, a column per occurrence: bars are the mean over heads, dots the single heads."""
    layers = study.layers(study.subjects[which], (1, -1))
    places = places[:_MAX_OCCURRENCES]
    figure = new_figure(min(PAGE, len(places) * 2.6 + 0.5), len(layers) * 1.75 + 0.3)
    panels = figure.subplots(len(layers), len(places), squeeze=False, sharey=True)
    for column, occurrence in enumerate(places):
        observation = study.observe(which, occurrence.text)
        for panel, layer in zip(panels[:, column], layers, strict=True):
            kernels = observation.kernels[layer - 1][:, occurrence.place]  # [H, K]
            taps, middle = range(kernels.shape[-1]), kernels.shape[-1] // 2
            around = [occurrence.place + tap - middle for tap in taps]
            window = [observation.tokens[at] if 0 <= at < len(observation.tokens) else "" for at in around]
            colours = [POSITIVE if tap == middle else "#8fb8de" for tap in taps]
            panel.bar(taps, kernels.mean(dim=0).numpy(), color=colours)
            panel.plot(taps, kernels.T.numpy(), ".", color=MUTED, markersize=3)
            panel.set_xticks(taps, window, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
            panel.get_xticklabels()[middle].set_fontweight("bold")
            panel.tick_params(labelsize=SMALL, length=1.5, pad=1)
            panel.spines[["top", "right"]].set_visible(False)
            if column == 0:
                panel.set_ylabel(f"layer {layer}", fontsize=8)
    return figure


def _draw_row(panel: Any, layers: Sequence[tuple[int, Tensor]], **style: Any) -> Any:
    """Draw the kernels [N, K] of several layers next to each other, as one image with gaps."""
    from matplotlib.patches import Rectangle

    rows, taps = layers[0][1].shape
    radius, step = taps // 2, taps + 1
    image = torch.full((rows, len(layers) * step - 1), float("nan"))
    ticks: dict[int, str] = {}
    for number, (layer, kernels) in enumerate(layers):
        left = number * step
        image[:, left : left + taps] = kernels
        ticks |= {left + radius + offset: f"{offset:+d}" if offset else "0" for offset in {-radius, 0, radius}}
        title = f"layer {layer}" if len(layers) <= _MAX_LONG_TITLES else str(layer)
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "center"}
        panel.annotate(title, (left + radius, 1.0), (0, 3), fontsize=8, **place)
        panel.add_patch(Rectangle((left - 0.5, -0.5), taps, rows, fill=False, edgecolor=MUTED, linewidth=0.5))
    drawn = panel.imshow(image.numpy(), aspect="auto", interpolation="nearest", **style)
    panel.set_xticks(list(ticks), list(ticks.values()))
    panel.tick_params(axis="x", labelsize=SMALL - 1.5, length=1.5, pad=1)
    panel.set_frame_on(False)
    return drawn
