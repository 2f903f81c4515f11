"""Kernels that are weights of a model: fixed per head, and depthwise per channel. They need no text."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lightbert.analysis.plots.kernels import plot_depthwise, plot_fixed
from lightbert.analysis.section import NotApplicableError, Picture, Section, Table, file_name
from lightbert.analysis.study.learned_kernels import depthwise_kernels, fixed_kernels
from lightbert.analysis.study.study import Study


def fixed_kernels_section(study: Study) -> Section:
    """Draw the fixed lightweight convolutions of each layer and head (composite Fig. 2)."""
    found = [(subject, kernels) for subject in study.subjects if (kernels := fixed_kernels(subject.model))]
    if not found:
        raise NotApplicableError(
            "the model has no fixed kernels: only composite attention with a fixed lightweight convolution has them"
        )
    chosen = [
        (subject, [kernels[layer - 1] for layer in study.layers(subject, default=range(1, len(kernels) + 1))])
        for subject, kernels in found
    ]
    largest = max(each.abs().max().item() for _, kernels in found for each in kernels)
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
                lambda: plot_fixed([(subject.name, kernels) for subject, kernels in chosen]),
            ),
        ),
        tuple(
            Table(
                subject.title("the largest weight of each head, with its offset"),
                ("layer", *(f"head {head + 1}" for head in range(len(kernels[0])))),
                [
                    (str(layer), *(f"{each.max():.3f} at {each.argmax() - each.numel() // 2:+d}" for each in weights))
                    for layer, weights in enumerate(kernels, start=1)
                ],
            )
            for subject, kernels in found
        ),
        details={subject.name or "model": [each.tolist() for each in kernels] for subject, kernels in found},
    )


def depthwise_kernels_section(study: Study) -> Section:
    """Draw the depthwise convolutions of each layer, with sorted channels (composite Fig. 3)."""
    found = [
        (subject, use, kernels)
        for subject in study.subjects
        for use, kernels in depthwise_kernels(subject.model).items()
    ]
    if not found:
        raise NotApplicableError("the model has no depthwise kernels: none of its mixers has a depthwise convolution")
    radius = max(kernels[0].shape[1] // 2 for _, _, kernels in found)
    pictures = []
    for subject, use, kernels in found:
        layers = study.layers(subject, default=range(1, len(kernels) + 1))
        pictures.append(
            Picture(
                file_name(f"depthwise {subject.name} {use}"),
                f"{subject.title(use)}. Each line is the kernel of a channel, by offset: blue above zero, red below. "
                "Channels are sorted by the weight of the next token minus that of the previous, so that channels for "
                "either are at the ends (composite paper, Fig. 3).",
                lambda layers=layers, kernels=kernels: plot_depthwise(  # type: ignore[misc]
                    [(layer, kernels[layer - 1]) for layer in layers]
                ),
            )
        )
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
                [(subject.title(use), *_profile(kernels, radius)) for subject, use, kernels in found],
            ),
        ),
    )


def _profile(kernels: Sequence[Tensor], radius: int) -> list[float | None]:
    """The mean absolute weight at each offset within a radius; None beyond the kernel."""
    values: list[float] = torch.stack([each.abs().mean(dim=0) for each in kernels]).mean(dim=0).tolist()
    beyond: list[float | None] = [None] * (radius - len(values) // 2)
    return [*beyond, *values, *beyond]
