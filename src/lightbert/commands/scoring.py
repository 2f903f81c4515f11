"""`evaluate` without a model: score prediction files, or collect them for the GLUE leaderboard."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.data.text_files import BadRows
    from lightbert.tasks.datasets.glue_results import Submission


@dataclass(frozen=True)
class ScoreReport:
    """The metrics of a file of predictions."""

    task: str
    metrics: dict[str, float]
    skipped: int = 0
    """The number of bad rows of the data that were skipped."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"task": self.task, "metrics": self.metrics, "skipped": self.skipped}

    def __rich__(self) -> "RenderableType":
        from lightbert.tasks.kinds.kind import Table

        rows: list[tuple[str, Any]] = list(self.metrics.items())
        return Table(self.task, ("metric", "value"), [*rows, ("skipped rows", self.skipped)]).__rich__()


@dataclass(frozen=True)
class SubmissionReport:
    """A zip file for the leaderboard."""

    submission: "Submission"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        found = self.submission
        return {
            "submission": str(found.path),
            "tables": list(found.written),
            "missing": list(found.missing),
            "metrics": {},
        }

    def __rich__(self) -> str:
        found = self.submission
        missing = f"; the leaderboard also requires {', '.join(found.missing)}" if found.missing else ""
        return f"'{found.path}' contains {', '.join(found.written)}{missing}"


def score(
    predictions: Path, task: str, data: str, split: str, *, bad_rows: "BadRows" = "error", na_probs: Path | None = None
) -> ScoreReport:
    """Score a file of predictions: SQuAD by the official rules, a GLUE table by the metrics of the task."""
    from lightbert.tasks.datasets import open_task, squad
    from lightbert.tasks.datasets.glue import find
    from lightbert.tasks.datasets.glue_results import read_predictions

    if not (task and data):
        raise InputError(f"scoring '{predictions}' requires a task and its data; add --task and --data")
    if task in ("squad", "squad2"):
        return ScoreReport(task, squad.score(data, predictions, na_probs))
    if find(task) is None:
        raise InputError(f"--predictions requires the task squad, squad2 or one of GLUE, got {task!r}")
    opened = open_task(task, data, bad_rows=bad_rows)
    examples = opened.examples(split)
    found = read_predictions(predictions, opened, examples)
    return ScoreReport(opened.name, opened.kind.metrics(examples, found), examples.skipped)


def collect(folder: Path | None, path: Path) -> SubmissionReport:
    """Collect the tables of a folder in one zip file."""
    from lightbert.tasks.datasets import glue_results

    if folder is None:
        raise InputError("--submission requires a folder of GLUE tables; add --predictions FOLDER")
    return SubmissionReport(glue_results.collect(folder, path))
