"""The report of an evaluation: as JSON, as a page, in a terminal, and as files with every prediction."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.files import make_folder, write_atomic
from lightbert.tasks.datasets.glue.prediction_files import write_predictions
from lightbert.tasks.datasets.glue.table import TABLE
from lightbert.tasks.datasets.squad.answer_files import N_BEST, NULL_ODDS, PREDICTIONS, write_answers
from lightbert.tasks.example import Question, Tagged
from lightbert.tasks.kinds.findings.finding import Finding, Table, example_fields
from lightbert.tasks.kinds.kind import Prediction

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Evaluation:
    """The metrics of one split, what else was found, and the predictions themselves."""

    task: str
    split: str
    metrics: dict[str, float]
    """Empty when the answers of the split are unknown."""
    examples: Sequence[Any] = field(repr=False)
    predictions: Sequence[Prediction] = field(repr=False)
    findings: Sequence[Finding] = field(default=(), repr=False)
    tokens: int = 0
    cut: int = 0
    """How many rows lost tokens because they were too long."""
    seconds: float = 0.0
    """Of the model's forward passes."""
    model: str = ""
    data: str = ""
    """What the report calls the model and the data."""

    def counts(self) -> dict[str, Any]:
        """How much there was, and how long it took."""
        return {
            "examples": len(self.examples),
            "tokens": self.tokens,
            "cut": self.cut,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens / self.seconds if self.seconds else 0.0,
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        asked = {"model": self.model, "data": self.data, "task": self.task, "split": self.split}
        return {
            **asked,
            "metrics": self.metrics,
            **self.counts(),
            **{finding.key: finding.value for finding in self.findings},
        }

    def to_markdown(self) -> str:
        """The report as a page."""
        title = f"# {self.task}, {self.split}" + (f": {self.model}" if self.model else "")
        title += f" on {self.data}" if self.data else ""
        return "\n\n".join([title, *(table.to_markdown() for table in self.tables())]) + "\n"

    def __rich__(self) -> "RenderableType":
        from rich.console import Group

        return Group(*self.tables())

    def tables(self) -> list[Table]:
        """Metrics first, then every finding, then what it took."""
        metrics = Table("Metrics", ("metric", "value"), [(name, float(value)) for name, value in self.metrics.items()])
        counted = self.counts()
        counted["tokens_per_second"] = round(counted["tokens_per_second"])
        shown = [(name.replace("_", " "), value) for name, value in counted.items()]
        counts = Table("Counts", ("count", "value"), shown)
        return [
            *([metrics] if self.metrics else []),
            *(table for each in self.findings for table in each.tables),
            counts,
        ]


def write(evaluation: Evaluation, folder: str | Path) -> list[Path]:
    """Write an evaluation into a folder, each file whole or not at all, and return the files.

    Where the answers are known: report.json and report.md. Always: predictions.jsonl, one line for each example. For
    SQuAD also its own files, and for a test set of GLUE the leaderboard's table, such as RTE.tsv. Others stay, so that
    one folder can hold the tables of all tasks.
    """
    folder = Path(folder)
    make_folder(folder)
    contents = {"predictions.jsonl": "".join(f"{line}\n" for line in _lines(evaluation))}
    if evaluation.metrics:
        contents["report.json"] = json.dumps(evaluation.to_json(), indent=2, ensure_ascii=False) + "\n"
        contents["report.md"] = evaluation.to_markdown()
    for name, content in contents.items():
        write_atomic(folder / name, content)
    written = [folder / name for name in contents]
    examples, predictions = evaluation.examples, evaluation.predictions
    if any(isinstance(example, Question) for example in examples):
        write_answers(folder, examples, predictions)
        return [*written, *(folder / name for name in (PREDICTIONS, NULL_ODDS, N_BEST))]
    if evaluation.task in TABLE and evaluation.split.startswith("test"):
        written.append(write_predictions(folder, evaluation.task, evaluation.split, examples, predictions))
    return written


def _lines(evaluation: Evaluation) -> Iterator[str]:
    for example, prediction in zip(evaluation.examples, evaluation.predictions, strict=True):
        yield json.dumps({**_asked(example), **prediction}, ensure_ascii=False)


def _asked(example: Any) -> dict[str, Any]:
    """What was asked, and the answer where that is known; a question's context is left to the task's own files."""
    match example:
        case Tagged():
            known = example.tags
            asked: dict[str, Any] = {"words": list(example.words)}
        case Question():
            known = None if example.answers is None else tuple(answer.text for answer in example.answers)
            asked = {"question": example.question}
        case _:
            known, asked = example.label, example_fields(example)
    return {"id": example.id, **asked} | ({} if known is None else {"true": known})
