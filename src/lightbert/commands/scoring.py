"""`evaluate` without a model: prediction files are scored, or collected for a leaderboard."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.data.text.row_file import BadRows
    from lightbert.tasks.datasets.glue.leaderboard import Submission


@dataclass(frozen=True)
class Scored:
    """The metrics of a file of predictions."""

    task: str
    metrics: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        return {"task": self.task, "metrics": self.metrics}

    def __rich__(self) -> "RenderableType":
        from lightbert.tasks.kinds.findings.finding import Table

        return Table(self.task, ("metric", "value"), list(self.metrics.items())).__rich__()


@dataclass(frozen=True)
class Collected:
    """A zip file for the leaderboard."""

    submission: "Submission"

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        found = self.submission
        return {
            "submission": str(found.path),
            "tables": list(found.written),
            "missing": list(found.missing),
            "metrics": {},
        }

    def __rich__(self) -> str:
        found = self.submission
        lacks = f"; the leaderboard also wants {', '.join(found.missing)}" if found.missing else ""
        return f"'{found.path}' holds {', '.join(found.written)}{lacks}"


def score(
    predictions: Path, task: str, data: str, split: str, *, bad_rows: "BadRows" = "error", na_probs: Path | None = None
) -> Scored:
    """Score a file: SQuAD's by the official rules, a table of GLUE's leaderboard by the task's metrics."""
    from lightbert.tasks.datasets.catalogue import open_task
    from lightbert.tasks.datasets.glue.prediction_files import read_predictions
    from lightbert.tasks.datasets.glue.table import find
    from lightbert.tasks.datasets.squad import answer_files

    if not (task and data):
        raise InputError(f"'{predictions}' needs a task and its data to be judged by: add --task and --data")
    if task in ("squad", "squad2"):
        return Scored(task, answer_files.score(data, predictions, na_probs))
    if find(task) is None:
        raise InputError(f"predictions can be scored for squad, squad2 and the tasks of GLUE, not for {task!r}")
    opened = open_task(task, data, bad_rows=bad_rows)
    examples = opened.examples(split)
    return Scored(opened.name, opened.kind.metrics(examples, read_predictions(predictions, opened, examples)))


def collect(folder: Path | None, path: Path) -> Collected:
    """Put the tables of a folder into one zip file."""
    from lightbert.tasks.datasets.glue import prediction_files

    if folder is None:
        raise InputError("--submission collects tables that are there: add --predictions FOLDER, where they are")
    return Collected(prediction_files.collect(folder, path))
