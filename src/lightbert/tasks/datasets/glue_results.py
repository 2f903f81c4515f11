"""Results on GLUE: the averages of two papers, prediction files, and submissions to the leaderboard."""

import io
import math
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from lightbert.errors import InputError, unknown
from lightbert.files import write_atomic
from lightbert.tasks.datasets.glue import HIGH, LOW, TABLE
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.kind import Prediction, Task

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
        metrics = results.get(self.task, {})
        if any(metric not in metrics for metric in self.metrics):
            return None
        return fmean(metrics[metric] for metric in self.metrics)


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
        """Compute the columns and their mean from ``{task: metrics}``, with the names of GLUE's tasks."""
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


FILES = {
    "cola": "CoLA.tsv",
    "sst2": "SST-2.tsv",
    "mrpc": "MRPC.tsv",
    "stsb": "STS-B.tsv",
    "mnli": "MNLI-m.tsv",
    MISMATCHED: "MNLI-mm.tsv",
    "qnli": "QNLI.tsv",
    "qqp": "QQP.tsv",
    "rte": "RTE.tsv",
    "wnli": "WNLI.tsv",
    "ax": "AX.tsv",
}
"""Test set -> name of its table in the zip file."""


@dataclass(frozen=True)
class Submission:
    """A submission: its path, the tables it contains, and the tables that the leaderboard requires but it lacks."""

    path: Path
    written: tuple[str, ...]
    missing: tuple[str, ...]


def table_of(name: str, task: str, examples: Sequence[Example], predictions: Sequence[Prediction]) -> str:
    """The table of one test set: the id and the prediction of each example, with GLUE's label names."""
    if len(examples) != len(predictions):
        raise InputError(
            f"{name} requires one prediction per example, got {len(predictions):,} for {len(examples):,} examples"
        )
    ids = [example.id for example in examples]
    if len(set(ids)) != len(ids):
        raise InputError(f"ids of {name} must be unique, got duplicates; use the indices of GLUE's test set")
    answers = _scores(predictions) if task == "stsb" else _glue_labels(task, predictions)
    return "index\tprediction\n" + "".join(f"{index}\t{answer}\n" for index, answer in zip(ids, answers, strict=True))


def _glue_labels(task: str, predictions: Sequence[Prediction]) -> Iterable[str]:
    glue_label = {label: file_label for file_label, label in TABLE[task].labels.items()}
    for prediction in predictions:
        label = str(prediction["label"])
        if label not in glue_label:
            raise unknown(f"label of {TABLE[task].title}", label, glue_label)
        yield glue_label[label]


def _scores(predictions: Sequence[Prediction]) -> Iterable[str]:
    for prediction in predictions:
        score = float(prediction["score"])
        if math.isnan(score):
            raise InputError("scores of STS-B must be numbers, got nan; the model has probably diverged")
        yield f"{min(max(LOW, score), HIGH):.3f}"


def to_zip(tables: Mapping[str, str]) -> bytes:
    """Create a zip file of the tables; the same tables give the same bytes."""
    buffer = io.BytesIO()
    # Not compressed: the output of zlib depends on its version.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for file, table in tables.items():
            entry = zipfile.ZipInfo(file, date_time=(1980, 1, 1, 0, 0, 0))
            # By default these depend on the system; 3 is Unix, 0o644 is readable by all.
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, table)
    return buffer.getvalue()


_HEADER = "index\tprediction"


def write_predictions(
    folder: Path, task: str, split: str, examples: Sequence[Example], predictions: Sequence[Prediction]
) -> Path:
    """Write the predictions for a test set to a folder, in the leaderboard's format and file name, such as RTE.tsv."""
    if task not in TABLE:
        raise unknown("GLUE test set", task, TABLE)
    name = _test_set(task, split)
    path = folder / FILES[name]
    write_atomic(path, table_of(name, task, examples, predictions))
    return path


def table_name(task: str, split: str) -> str:
    """The file name of the table of a test set."""
    return FILES[_test_set(task, split)]


def _test_set(task: str, split: str) -> str:
    return MISMATCHED if task == "mnli" and split.endswith("mismatched") else task


def read_predictions(path: str | Path, task: Task, examples: Sequence[Example]) -> list[Prediction]:
    """Read the predictions for the given examples, matched by id."""
    path = Path(path)
    cells = dict(_rows(path))
    missing = [example.id for example in examples if example.id not in cells]
    if missing:
        raise InputError(
            f"'{path}' must have a prediction for every example, {len(missing):,} of {len(examples):,} are missing, "
            f"the first is {missing[0]!r}: give the file for the same split"
        )
    return [_prediction(cells[example.id], TABLE[task.name].labels, path) for example in examples]


def _prediction(cell: str, labels: Mapping[str, str], path: Path) -> Prediction:
    if cell in labels:
        return {"label": labels[cell]}
    if labels:
        raise InputError(f"predictions of '{path}' must be one of {', '.join(labels)}, got {cell!r}")
    try:
        return {"score": float(cell)}
    except ValueError:
        raise InputError(f"predictions of '{path}' must be numbers, got {cell!r}") from None


def collect(folder: str | Path, path: str | Path) -> Submission:
    """Zip all tables of a folder for the leaderboard; the same predictions give the same bytes."""
    folder, path = Path(folder), Path(path)
    names = list(FILES.values())
    tables = {name: (folder / name).read_text(encoding="utf-8") for name in names if (folder / name).is_file()}
    if not tables:
        raise InputError(
            f"'{folder}' must contain predictions such as {names[0]}: write them first with --split test --out"
        )
    write_atomic(path, to_zip(tables))
    return Submission(path, tuple(tables), tuple(name for name in names if name not in tables))


def _rows(path: Path) -> list[tuple[str, str]]:
    try:
        header, *lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise InputError(f"'{path}' not found; give a prediction file such as RTE.tsv") from None
    except (UnicodeDecodeError, ValueError):
        raise InputError(f"'{path}' is empty or not UTF-8; give a prediction file such as RTE.tsv") from None
    if header.lower() != _HEADER:
        raise InputError(f"'{path}' must begin with the header {_HEADER!r}, got {header[:80]!r}")
    rows = []
    for number, line in enumerate(lines, start=2):
        index, tab, prediction = line.partition("\t")
        if not tab:
            raise InputError(f"line {number} of '{path}' must be an index, a tab and a prediction, got {line[:80]!r}")
        rows.append((index, prediction))
    return rows
