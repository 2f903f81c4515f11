"""The GLUE averages of two papers, computed from the metrics of the tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

MISMATCHED = "mnli-mm"
"""The key of results on MNLI-mismatched; "mnli" is MNLI-matched."""


@dataclass(frozen=True)
class Column:
    """A column of a paper's table: a metric of a task, or the mean of several."""

    title: str
    task: str
    metrics: tuple[str, ...]

    def value(self, results: Mapping[str, Mapping[str, float]]) -> float | None:
        """The value of the column; None if a metric is missing."""
        found = results.get(self.task, {})
        if any(metric not in found for metric in self.metrics):
            return None
        return fmean(found[metric] for metric in self.metrics)


@dataclass(frozen=True)
class Score:
    """The columns of a paper's table and their mean, which is None if a column is missing."""

    name: str
    columns: Mapping[str, float | None]
    mean: float | None

    @property
    def missing(self) -> tuple[str, ...]:
        """The titles of the columns without a value."""
        return tuple(title for title, value in self.columns.items() if value is None)

    def sentence(self) -> str:
        """The mean in percent, or the columns that are missing."""
        if self.mean is None:
            return f"{self.name}: not computed, missing {', '.join(self.missing)}"
        return f"{self.name}: {100 * self.mean:.1f}"


@dataclass(frozen=True)
class Mean:
    """An unweighted mean over columns."""

    name: str
    columns: tuple[Column, ...]

    def of(self, results: Mapping[str, Mapping[str, float]]) -> Score:
        """Compute the columns and their mean from ``{task: metrics}``, with the task names of `glue.table`."""
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
"""Jiang et al. 2020, Tables 2 and 3. They don't name the metric of MRPC; the released code uses accuracy."""

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
