"""The submission format of the GLUE leaderboard: a zip file with one table per test set."""

import io
import math
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lightbert.errors import InputError, unknown
from lightbert.tasks.datasets.glue.means import MISMATCHED
from lightbert.tasks.datasets.glue.table import HIGH, LOW, TABLE
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.kind import Prediction

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
