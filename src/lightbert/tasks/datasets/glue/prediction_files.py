"""A test set's predictions as a file of their own, which can be judged later or collected for the leaderboard."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lightbert.errors import InputError, unknown
from lightbert.files import write_atomic
from lightbert.tasks.datasets.glue.leaderboard import FILES, Submission, table_of, zipped
from lightbert.tasks.datasets.glue.means import MISMATCHED
from lightbert.tasks.datasets.glue.table import TABLE
from lightbert.tasks.datasets.task import Task
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.kind import Prediction

_HEADER = "index\tprediction"


def write_predictions(
    folder: Path, task: str, split: str, examples: Sequence[Example], predictions: Sequence[Prediction]
) -> Path:
    """Write the leaderboard's table of a test set, such as RTE.tsv, into a folder."""
    if task not in TABLE:
        raise unknown("GLUE test set", task, TABLE)
    name = MISMATCHED if task == "mnli" and split.endswith("mismatched") else task
    path = folder / FILES[name]
    write_atomic(path, table_of(name, task, examples, predictions))
    return path


def read_predictions(path: str | Path, task: Task, examples: Sequence[Example]) -> list[Prediction]:
    """Read such a table again: one prediction for each example, found by its id."""
    path = Path(path)
    said = dict(_rows(path))
    missing = [example.id for example in examples if example.id not in said]
    if missing:
        raise InputError(
            f"'{path}' has no prediction for {len(missing):,} of {len(examples):,} examples, the first of them "
            f"{missing[0]!r}: give the file for the same split"
        )
    return [_prediction(said[example.id], TABLE[task.name].labels, path) for example in examples]


def _prediction(cell: str, labels: Mapping[str, str], path: Path) -> Prediction:
    if cell in labels:
        return {"label": labels[cell]}
    if labels:
        raise InputError(f"'{path}' predicts {cell!r}, which is none of {', '.join(labels)}")
    try:
        return {"score": float(cell)}
    except ValueError:
        raise InputError(f"'{path}' predicts {cell!r}, which is no number") from None


def collect(folder: str | Path, path: str | Path) -> Submission:
    """Put all tables of a folder into the zip file that the leaderboard takes; same predictions, same bytes."""
    folder, path = Path(folder), Path(path)
    names = list(FILES.values())
    tables = {name: (folder / name).read_text(encoding="utf-8") for name in names if (folder / name).is_file()}
    if not tables:
        raise InputError(f"'{folder}' has no predictions such as {names[0]}: write them first, with --split test --out")
    write_atomic(path, zipped(tables))
    return Submission(path, tuple(tables), tuple(name for name in names if name not in tables))


def _rows(path: Path) -> list[tuple[str, str]]:
    try:
        header, *lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise InputError(f"there is no file '{path}'; give a table of predictions such as RTE.tsv") from None
    except (UnicodeDecodeError, ValueError):
        raise InputError(f"'{path}' is empty or not UTF-8; give a table of predictions such as RTE.tsv") from None
    if header.lower() != _HEADER:
        raise InputError(f"'{path}' begins with {header[:80]!r} where a table of predictions has {_HEADER!r}")
    rows = []
    for number, line in enumerate(lines, start=2):
        index, tab, prediction = line.partition("\t")
        if not tab:
            raise InputError(f"'{path}', line {number}: {line[:80]!r} is no index and prediction with a tab between")
        rows.append((index, prediction))
    return rows
