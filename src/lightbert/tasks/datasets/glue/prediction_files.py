"""Prediction files of GLUE test sets: written, scored, and collected for the leaderboard."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lightbert.errors import InputError, unknown
from lightbert.files import write_atomic
from lightbert.tasks.datasets.glue.leaderboard import FILES, Submission, table_of, to_zip
from lightbert.tasks.datasets.glue.means import MISMATCHED
from lightbert.tasks.datasets.glue.table import TABLE
from lightbert.tasks.datasets.task import Task
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.kind import Prediction

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
    found = dict(_rows(path))
    missing = [example.id for example in examples if example.id not in found]
    if missing:
        raise InputError(
            f"'{path}' must have a prediction for every example, {len(missing):,} of {len(examples):,} are missing, "
            f"the first is {missing[0]!r}: give the file for the same split"
        )
    return [_prediction(found[example.id], TABLE[task.name].labels, path) for example in examples]


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
