"""Diagonal concentration of the attention maps over texts, next to the figures of ConvBERT Table 8."""

from collections.abc import Sequence
from typing import Any

from lightbert.analysis.plots.heads import plot_grids, plot_layer_values
from lightbert.analysis.section import Cell, NotApplicableError, Picture, Section, Table
from lightbert.analysis.study.head_statistics import RADIUS, HeadStatistics
from lightbert.analysis.study.study import Study

PAPER = {"BERT in the paper": 0.941, "ConvBERT in the paper": 0.608}
"""ConvBERT Table 8, on MRPC."""


def concentration_section(study: Study) -> Section:
    """C as in the paper: the mean map over layers and heads, C per text, then the mean over texts."""
    check_measured(study, "concentration")
    found = [*zip(study.subjects, study.statistics, strict=True)]
    if not any(statistics.concentrations for _, statistics in found):
        raise NotApplicableError(
            f"the analysis 'concentration' requires texts of more than {RADIUS + 1} tokens; give longer texts"
        )
    by_head = Picture(
        "concentration-heads",
        "C of each layer and head over all texts together, on a logarithmic colour scale. A head above 1 attends more "
        "to its neighbourhood than to the rest of the text.",
        lambda: plot_grids([(subject.title("C"), each.by_head) for subject, each in found], logarithmic=True),
    )
    uniform = sum(found[0][1].uniform) / max(1, len(found[0][1].uniform))
    by_layer = Picture(
        "concentration-layers",
        "C of the mean map of each layer, with the paper's figures for whole models. Uniform attention to the same "
        "texts has the C of the line 'uniform'; the shorter the texts, the higher it is.",
        lambda: plot_layer_values(
            [(subject.name, each.by_layer) for subject, each in found],
            {**PAPER, "uniform attention": uniform},
            "C",
        ),
    )
    metrics: dict[str, float] = {}
    for subject, each in found:
        metrics[f"{subject.prefix}concentration"] = each.concentration
        metrics[f"{subject.prefix}concentration_pooled"] = each.pooled
        for layer, value in enumerate(each.by_layer.tolist(), start=1):
            metrics[f"{subject.prefix}concentration_{layer}"] = value
    return Section(
        "concentration",
        "Diagonal concentration",
        f"C = Σ M(|i−j| ≤ {RADIUS}) / Σ M(|i−j| > {RADIUS}): attention to tokens at most {RADIUS} places away over "
        "attention to all others (ConvBERT §6.5). It depends on the length of the texts, so compare models on the same "
        "texts, and with uniform attention.",
        (by_layer, by_head),
        (Table("Diagonal concentration", ("model", "C", "C pooled", "texts", "tokens per text"), _rows(found)),),
        metrics,
        {subject.name or "model": _details(each) for subject, each in found},
        _notes(study, found[0][1]),
    )


def check_measured(study: Study, name: str) -> None:
    """Raise an error if there are no texts for statistics."""
    if not study.texts.measured:
        raise NotApplicableError(f"the analysis '{name}' requires texts; add --data FILE or --text TEXT")


def _rows(found: Sequence[tuple[Any, HeadStatistics]]) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = [
        (subject.name or "this model", each.concentration, each.pooled, f"{each.texts:,}", each.tokens / each.texts)
        for subject, each in found
    ]
    uniform = found[0][1].uniform
    rows.append(("uniform attention", sum(uniform) / len(uniform), None, f"{len(uniform):,}", None))
    return [*rows, *((name, value, None, "MRPC", None) for name, value in PAPER.items())]


def _details(statistics: HeadStatistics) -> dict[str, Any]:
    return {
        "texts": statistics.texts,
        "concentration": statistics.concentration,
        "pooled": statistics.pooled,
        "layers": statistics.by_layer.tolist(),
        "heads": statistics.by_head.tolist(),
    }


def _notes(study: Study, statistics: HeadStatistics) -> tuple[str, ...]:
    short = statistics.texts - len(statistics.concentrations)
    if not short:
        return study.texts.notes
    return (
        *study.texts.notes,
        f"{short:,} texts of at most {RADIUS + 1} tokens have no C and are left out of its mean.",
    )
