"""Predictions for the test sets as GLUE's leaderboard takes them: one zip file, one table for each task."""

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
"""Results -> their table in the zip file."""


@dataclass(frozen=True)
class Submission:
    """What a zip file holds, and what it lacks: the leaderboard wants all of them."""

    path: Path
    written: tuple[str, ...]
    missing: tuple[str, ...]


def table_of(name: str, task: str, examples: Sequence[Example], predictions: Sequence[Prediction]) -> str:
    """The table of one test set: an example's id and the prediction as GLUE spells it."""
    if len(examples) != len(predictions):
        raise InputError(
            f"{len(predictions):,} predictions for {len(examples):,} examples of {name}; give one for each"
        )
    ids = [example.id for example in examples]
    if len(set(ids)) != len(ids):
        raise InputError(f"examples of {name} share an id; give each one the index that GLUE's test set gives it")
    answers = _scores(predictions) if task == "stsb" else _spellings(task, predictions)
    return "index\tprediction\n" + "".join(f"{index}\t{answer}\n" for index, answer in zip(ids, answers, strict=True))


def _spellings(task: str, predictions: Sequence[Prediction]) -> Iterable[str]:
    spelling = {label: file_label for file_label, label in TABLE[task].labels.items()}
    for prediction in predictions:
        label = str(prediction["label"])
        if label not in spelling:
            raise unknown(f"label of {TABLE[task].title}", label, spelling)
        yield spelling[label]


def _scores(predictions: Sequence[Prediction]) -> Iterable[str]:
    for prediction in predictions:
        score = float(prediction["score"])
        if math.isnan(score):
            raise InputError("a score of STS-B is not a number; the model that predicted it has diverged")
        yield f"{min(max(LOW, score), HIGH):.3f}"


def zipped(tables: Mapping[str, str]) -> bytes:
    """The zip file of tables by their names."""
    buffer = io.BytesIO()
    # Stored, not deflated: what zlib makes of a text depends on its version.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for file, table in tables.items():
            entry = zipfile.ZipInfo(file, date_time=(1980, 1, 1, 0, 0, 0))
            # The bytes must not depend on the system either; 3 is Unix, and a file that everybody may read.
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, table)
    return buffer.getvalue()
