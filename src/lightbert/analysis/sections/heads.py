"""Locality and redundancy of attention heads over texts."""

from typing import Any

from lightbert.analysis.plots.heads import plot_grids, plot_overlap, plot_profiles
from lightbert.analysis.section import Picture, Section, Table, file_name
from lightbert.analysis.sections.concentration import check_measured
from lightbert.analysis.study.head_statistics import RADIUS, HeadStatistics
from lightbert.analysis.study.study import Study

_STATISTICS = {
    "locality": f"share of attention within {RADIUS} tokens",
    "distance": "mean distance in tokens",
    "entropy": "entropy in nats",
    "special": "share of attention on [CLS] and [SEP]",
    "redundancy": "largest overlap with another head of the layer",
}


def heads_section(study: Study) -> Section:
    """Compute five statistics of each head, its attention by distance, and the overlap of all pairs of heads."""
    check_measured(study, "heads")
    found = [(subject, each, _matrices(each)) for subject, each in zip(study.subjects, study.statistics, strict=True)]
    pictures = [
        Picture(
            file_name(f"statistics {subject.name}"),
            "Five statistics of each layer and head. Local heads have a high locality, a short distance and a low "
            "entropy; a head that mostly attends to [CLS] and [SEP] hardly mixes tokens; a head with a redundancy near "
            "1 attends as another head of its layer does.",
            lambda subject=subject, matrices=matrices: plot_grids(  # type: ignore[misc]
                [(subject.title(name), values) for name, values in matrices.items()], columns=2
            ),
        )
        for subject, _, matrices in found
    ]
    pictures.append(
        Picture(
            "distance",
            "Attention by the offset of the attended token, a line per head, grouped by layer. A strong cell at -1 or "
            "+1 is a head for the previous or the next token, as the kernels of a convolution.",
            lambda: plot_profiles([(subject.name, each.profile) for subject, each, _ in found]),
        )
    )
    pictures.append(
        Picture(
            "overlap",
            "The overlap of each pair of heads: 1 if they distribute their attention alike, 0 if they attend to "
            "different tokens (Bhattacharyya's coefficient, mean over tokens). Strong squares on the diagonal are "
            "layers of redundant heads.",
            lambda: plot_overlap([(subject.name, each.overlap, each.local.shape[1]) for subject, each, _ in found]),
        )
    )
    return Section(
        "heads",
        "Locality and redundancy of heads",
        "Which heads attend to neighbours, and which do what another head does already: the heads that a convolution "
        "can replace (ConvBERT §3.3).",
        tuple(pictures),
        tuple(
            Table(
                subject.title("mean over the heads of a layer"),
                ("layer", *matrices),
                [
                    (str(layer + 1), *(values[layer].mean().item() for values in matrices.values()))
                    for layer in range(subject.depth)
                ],
            )
            for subject, _, matrices in found
        ),
        {
            f"{subject.prefix}{name}": values.mean().item()
            for subject, _, matrices in found
            for name, values in matrices.items()
        },
        {
            subject.name or "model": {
                **{name: values.tolist() for name, values in matrices.items()},
                "by_offset": each.profile.tolist(),
                "overlap": each.overlap.tolist(),
                "meaning": _STATISTICS,
            }
            for subject, each, matrices in found
        },
        study.texts.notes,
    )


def _matrices(statistics: HeadStatistics) -> dict[str, Any]:
    return {
        "locality": statistics.local,
        "distance": statistics.distance,
        "entropy": statistics.entropy,
        "special": statistics.special,
        "redundancy": statistics.redundancy,
    }
