"""Dynamic kernels of mixed attention: for each token of a text, and for a word in several contexts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, cat

from lightbert.analysis.plots.kernels import WordKernels, plot_dynamic, plot_word
from lightbert.analysis.section import NotApplicableError, Picture, Section, Table, file_name
from lightbert.analysis.study.study import Study, Subject
from lightbert.analysis.study.words import Occurrence, find_words, kernel_overlap
from lightbert.nn.composite import LocalAttention
from lightbert.nn.convolution import DynamicConvolution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_OCCURRENCES = 4


def dynamic_kernels_section(study: Study) -> Section:
    """Draw the kernels of the subjects that generate them, and compare those of the same word."""
    having = [which for which, subject in enumerate(study.subjects) if _has_kernels(subject)]
    if not having:
        raise NotApplicableError(
            "the model has no dynamic kernels: only mixed attention (ConvBERT) generates them per token"
        )
    study.check_drawn("dynamic-kernels")
    pictures: list[Picture] = []
    tables, metrics, details = [], {}, {}
    for which in having:
        subject = study.subjects[which]
        rows = [study.row(which, text) for text in range(len(study.texts.drawn))]
        words = find_words(rows, study.encoders[which], study.settings.words)
        pictures += [_word_picture(study, which, word, places) for word, places in words.items()]
        pictures += [_text_picture(study, which, text) for text in range(len(rows))]
        overlaps = _overlaps(study, which, words)
        tables.append(
            Table(
                subject.title("overlap of kernels"),
                ("layer", *(f"“{word}”" for word in words if word in overlaps), "any two tokens"),
                [(str(layer + 1), *values) for layer, values in enumerate(zip(*overlaps.values(), strict=True))],
            )
        )
        for word, values in overlaps.items():
            metrics[f"{subject.prefix}kernel_overlap{'_' * bool(word)}{word}"] = sum(values) / len(values)
        details[subject.name or "model"] = {
            "overlap": {word or "any two tokens": each for word, each in overlaps.items()}
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


def _has_kernels(subject: Subject) -> bool:
    return any(isinstance(part, DynamicConvolution | LocalAttention) for part in subject.model.modules())


def _text_picture(study: Study, which: int, text: int) -> Picture:
    subject = study.subjects[which]

    def draw() -> "Figure":
        seen = study.observe(which, text)
        layers = study.layers(subject, default=range(1, subject.depth + 1))
        return plot_dynamic([(layer, seen.kernels[layer - 1]) for layer in layers], seen.tokens)

    number = f"-{text + 1}" if len(study.texts.drawn) > 1 else ""
    caption = (
        "The kernels of each token, in a row: the weights of the tokens around it, from the left to the right of the "
        "window. A strong column is a kernel that all tokens share, a varied one depends on the token."
    )
    return Picture(f"kernels{_part(study, which)}{number}", _name(subject, caption), draw)


def _word_picture(study: Study, which: int, word: str, places: Sequence[Occurrence]) -> Picture:
    subject = study.subjects[which]

    def draw() -> "Figure":
        layers = study.layers(subject, default=(1, -1))
        shown = []
        for place in places[:_MOST_OCCURRENCES]:
            seen = study.observe(which, place.text)
            shown.append([_window(layer, seen.kernels[layer - 1], seen.tokens, place.place) for layer in layers])
        return plot_word(shown)

    caption = (
        f"The kernels of “{word}” in up to {_MOST_OCCURRENCES} places: bars are the mean over the convolution heads, "
        "dots the single heads; the labels are the tokens that the kernel weights. Different bars for one word show "
        "that the kernel depends on the context (ConvBERT Fig. 1c)."
    )
    return Picture(f"word-{file_name(word)}{_part(study, which)}", _name(subject, caption), draw)


def _window(layer: int, kernels: Tensor, tokens: Sequence[str], place: int) -> WordKernels:
    radius = kernels.shape[-1] // 2
    around = range(place - radius, place + radius + 1)
    window = tuple(tokens[at] if 0 <= at < len(tokens) else "" for at in around)
    return WordKernels(layer, window, kernels[:, place])


def _overlaps(study: Study, which: int, words: dict[str, list[Occurrence]]) -> dict[str, list[float]]:
    """Word -> the overlap of its kernels in each layer; "" -> that of any two tokens."""
    seen = [study.observe(which, text).kernels for text in range(len(study.texts.drawn))]
    depth = len(seen[0])
    found: dict[str, list[float]] = {}
    for word, places in words.items():
        if len(places) > 1:
            kernels = [[seen[at.text][layer][:, at.place] for at in places] for layer in range(depth)]
            found[word] = [kernel_overlap(_side_by_side(each)) for each in kernels]
    every = [cat([text[layer] for text in seen], dim=1) for layer in range(depth)]
    return found | {"": [kernel_overlap(each) for each in every]}


def _side_by_side(kernels: Sequence[Tensor]) -> Tensor:
    """Kernels [H, K] of several tokens as [H, N, K]."""
    return cat([each[:, None] for each in kernels], dim=1)


def _part(study: Study, which: int) -> str:
    return f"-{which + 1}" if len(study.subjects) > 1 else ""


def _name(subject: Subject, caption: str) -> Any:
    return f"{subject.name}. {caption}" if subject.name else caption
