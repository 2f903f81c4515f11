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
class Score:
    """The columns of a paper's table and their mean, which is None if a column is missing."""

    name: str
    columns: Mapping[str, float | None]

    @property
    def missing(self) -> tuple[str, ...]:
        """The titles of the columns without a value."""
        return tuple(title for title, value in self.columns.items() if value is None)

    @property
    def mean(self) -> float | None:
        """The unweighted mean of the columns."""
        values = [value for value in self.columns.values() if value is not None]
        return None if self.missing else fmean(values)

    def sentence(self) -> str:
        """The mean in percent, or the columns that are missing."""
        if self.mean is None:
            return f"{self.name}: not computed, missing {', '.join(self.missing)}"
        return f"{self.name}: {100 * self.mean:.1f}"


@dataclass(frozen=True)
class Mean:
    """The columns of a paper's table: title -> the task, and one of its metrics or several that are averaged."""

    name: str
    columns: Mapping[str, tuple[str, ...]]

    def of(self, results: Mapping[str, Mapping[str, float]]) -> Score:
        """Compute the columns from ``{task: metrics}``, with the names of GLUE's tasks."""
        values: dict[str, float | None] = {}
        for title, (task, *metrics) in self.columns.items():
            found = [value for metric in metrics if (value := results.get(task, {}).get(metric)) is not None]
            values[title] = fmean(found) if len(found) == len(metrics) else None
        return Score(self.name, values)


CONVBERT = Mean(
    "ConvBERT's mean of eight",
    {
        "MNLI": ("mnli", "accuracy"),
        "QNLI": ("qnli", "accuracy"),
        "QQP": ("qqp", "accuracy"),
        "RTE": ("rte", "accuracy"),
        "SST-2": ("sst2", "accuracy"),
        "MRPC": ("mrpc", "accuracy"),
        "CoLA": ("cola", "mcc"),
        "STS-B": ("stsb", "spearman"),
    },
)
"""Jiang et al. 2020, Tables 2 and 3. They don't name the metric of MRPC; the released code uses accuracy."""

COMPOSITE = Mean(
    "Chang et al.'s mean of nine",
    {
        "CoLA": ("cola", "mcc"),
        "MNLI-m": ("mnli", "accuracy"),
        "MNLI-mm": (MISMATCHED, "accuracy"),
        "MRPC": ("mrpc", "accuracy", "f1"),
        "QNLI": ("qnli", "accuracy"),
        "QQP": ("qqp", "accuracy", "f1"),
        "RTE": ("rte", "accuracy"),
        "SST": ("sst2", "accuracy"),
        "STS": ("stsb", "pearson", "spearman"),
    },
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


_HEADER = "index\tprediction"


def write_predictions(
    folder: Path, task: str, split: str, examples: Sequence[Example], predictions: Sequence[Prediction]
) -> Path:
    """Write the predictions for a test set to a folder, in the leaderboard's format and file name, such as RTE.tsv."""
    if task not in TABLE:
        raise unknown("GLUE test set", task, TABLE)
    if len(examples) != len(predictions):
        raise InputError(
            f"{task} requires one prediction per example, got {len(predictions):,} for {len(examples):,} examples"
        )
    ids = [example.id for example in examples]
    if len(set(ids)) != len(ids):
        raise InputError(f"ids of {task} must be unique, got duplicates; use the indices of GLUE's test set")
    answers = _scores(predictions) if task == "stsb" else _glue_labels(task, predictions)
    rows = (f"{index}\t{answer}\n" for index, answer in zip(ids, answers, strict=True))
    path = folder / table_name(task, split)
    write_atomic(path, f"{_HEADER}\n{''.join(rows)}")
    return path


def table_name(task: str, split: str) -> str:
    """The file name of the table of a test set."""
    return FILES[MISMATCHED if task == "mnli" and split.endswith("mismatched") else task]


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
    buffer = io.BytesIO()
    # Not compressed: the output of zlib depends on its version.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, table in tables.items():
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            # By default these depend on the system; 3 is Unix, 0o644 is readable by all.
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, table)
    write_atomic(path, buffer.getvalue())
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
