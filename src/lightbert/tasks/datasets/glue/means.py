"""One number for all of GLUE, as two of the papers make it out of the tasks' metrics."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

MISMATCHED = "mnli-mm"
"""The name of MNLI's results on its mismatched half; "mnli" are those on the matched one."""


@dataclass(frozen=True)
class Column:
    """A column of a paper's table: a metric of a task, or the mean of several."""

    title: str
    task: str
    metrics: tuple[str, ...]

    def value(self, results: Mapping[str, Mapping[str, float]]) -> float | None:
        """The column's number; None if the task was not judged, or not by all of the metrics."""
        found = results.get(self.task, {})
        if any(metric not in found for metric in self.metrics):
            return None
        return fmean(found[metric] for metric in self.metrics)


@dataclass(frozen=True)
class Score:
    """A paper's columns with their mean, which is None as long as a column is missing."""

    name: str
    columns: Mapping[str, float | None]
    mean: float | None

    @property
    def missing(self) -> tuple[str, ...]:
        """The titles of the columns that have no number."""
        return tuple(title for title, value in self.columns.items() if value is None)

    def sentence(self) -> str:
        """The mean, or what it lacks."""
        if self.mean is None:
            return f"{self.name}: no mean without {', '.join(self.missing)}"
        return f"{self.name}: {100 * self.mean:.1f}"


@dataclass(frozen=True)
class Mean:
    """A plain mean over columns."""

    name: str
    columns: tuple[Column, ...]

    def of(self, results: Mapping[str, Mapping[str, float]]) -> Score:
        """Fill the columns from ``{task: metrics}``, the tasks under their names in the table of GLUE."""
        values = {column.title: column.value(results) for column in self.columns}
        known = [value for value in values.values() if value is not None]
        return Score(self.name, values, fmean(known) if len(known) == len(values) else None)


_ACCURACY = ("accuracy",)
_MCC = ("mcc",)
_ACCURACY_AND_F1 = ("accuracy", "f1")

CONVBERT = Mean(
    "ConvBERT's mean of eight",
    (
        Column("MNLI", "mnli", _ACCURACY),
        Column("QNLI", "qnli", _ACCURACY),
        Column("QQP", "qqp", _ACCURACY),
        Column("RTE", "rte", _ACCURACY),
        Column("SST-2", "sst2", _ACCURACY),
        Column("MRPC", "mrpc", _ACCURACY),
        Column("CoLA", "cola", _MCC),
        Column("STS-B", "stsb", ("spearman",)),
    ),
)
"""Jiang et al. 2020, Tables 2 and 3. MRPC's metric is not named there; the released code takes accuracy."""

COMPOSITE = Mean(
    "Chang et al.'s mean of nine",
    (
        Column("CoLA", "cola", _MCC),
        Column("MNLI-m", "mnli", _ACCURACY),
        Column("MNLI-mm", MISMATCHED, _ACCURACY),
        Column("MRPC", "mrpc", _ACCURACY_AND_F1),
        Column("QNLI", "qnli", _ACCURACY),
        Column("QQP", "qqp", _ACCURACY_AND_F1),
        Column("RTE", "rte", _ACCURACY),
        Column("SST", "sst2", _ACCURACY),
        Column("STS", "stsb", ("pearson", "spearman")),
    ),
)
"""Chang et al. 2021, Tables 1, 2, 6 and 7."""

MEANS = (CONVBERT, COMPOSITE)
