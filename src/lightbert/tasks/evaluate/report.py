"""The report of an evaluation, as JSON, Markdown and terminal tables, and files with all predictions."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.files import list_outputs, make_folder, write_atomic
from lightbert.tasks.datasets.glue.prediction_files import table_name, write_predictions
from lightbert.tasks.datasets.glue.table import TABLE
from lightbert.tasks.datasets.squad.answer_files import N_BEST, NULL_ODDS, PREDICTIONS, write_answers
from lightbert.tasks.datasets.task import Task
from lightbert.tasks.example import Question, TaggedSentence, is_labelled
from lightbert.tasks.kinds.findings import Finding, Table, example_fields
from lightbert.tasks.kinds.kind import Prediction

if TYPE_CHECKING:
    from rich.console import RenderableType

FILES = ("predictions.jsonl", "report.json", "report.md")
"""The files that are written for every task, of which the reports require labels."""


@dataclass(frozen=True)
class Evaluation:
    """The metrics, findings and predictions of one split."""

    task: str
    split: str
    metrics: dict[str, float]
    """Empty if an example has no label."""
    examples: Sequence[Any] = field(repr=False)
    predictions: Sequence[Prediction] = field(repr=False)
    findings: Sequence[Finding] = field(default=(), repr=False)
    tokens: int = 0
    cut: int = 0
    """The number of truncated rows."""
    skipped: int = 0
    """The number of bad rows of the file that were skipped."""
    seconds: float = 0.0
    """The time of the forward passes."""
    model: str = ""
    data: str = ""
    """The names of the model and the data in the report."""

    def counts(self) -> dict[str, Any]:
        """Counts of examples and tokens, time and throughput."""
        return {
            "examples": len(self.examples),
            "unlabelled": sum(not is_labelled(example) for example in self.examples),
            "skipped": self.skipped,
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
        """The report as Markdown."""
        title = f"# {self.task}, {self.split}" + (f": {self.model}" if self.model else "")
        title += f" on {self.data}" if self.data else ""
        return "\n\n".join([title, *(table.to_markdown() for table in self.tables())]) + "\n"

    def __rich__(self) -> "RenderableType":
        from rich.console import Group

        return Group(*self.tables())

    def tables(self) -> list[Table]:
        """The metrics, the findings and the counts, as tables."""
        metrics = Table("Metrics", ("metric", "value"), [(name, float(value)) for name, value in self.metrics.items()])
        values = self.counts()
        values["tokens_per_second"] = round(values["tokens_per_second"])
        rows = [(name.replace("_", " "), value) for name, value in values.items()]
        counts = Table("Counts", ("count", "value"), rows)
        return [
            *([metrics] if self.metrics else []),
            *(table for each in self.findings for table in each.tables),
            counts,
        ]


def output_names(task: Task, split: str) -> list[str]:
    """The files that `write` may write for a task."""
    answers = [PREDICTIONS, NULL_ODDS, N_BEST] if task.kind.head in ("span", "beam") else []
    return [*FILES, *answers, *([table_name(task.name, split)] if task.name in TABLE else [])]


def write(evaluation: Evaluation, folder: str | Path) -> list[Path]:
    """Write an evaluation to a folder, each file atomically, and return the paths.

    predictions.jsonl has one line per example; report.json and report.md are written if the labels are known. SQuAD
    adds files in its own format, and a test set of GLUE adds the leaderboard's table, such as RTE.tsv. Other files of
    the folder are kept, so that one folder can collect the tables of all tasks.
    """
    folder = Path(folder)
    make_folder(folder)
    contents = {FILES[0]: "".join(f"{line}\n" for line in _lines(evaluation))}
    if evaluation.metrics:
        contents[FILES[1]] = json.dumps(evaluation.to_json(), indent=2, ensure_ascii=False) + "\n"
        contents[FILES[2]] = evaluation.to_markdown()
    for name, content in contents.items():
        write_atomic(folder / name, content)
    written = [folder / name for name in contents]
    examples, predictions = evaluation.examples, evaluation.predictions
    if any(isinstance(example, Question) for example in examples):
        write_answers(folder, examples, predictions)
        written += [folder / name for name in (PREDICTIONS, NULL_ODDS, N_BEST)]
    elif evaluation.task in TABLE and evaluation.split.startswith("test"):
        written.append(write_predictions(folder, evaluation.task, evaluation.split, examples, predictions))
    list_outputs(folder, [path.name for path in written])
    return written


def _lines(evaluation: Evaluation) -> Iterator[str]:
    for example, prediction in zip(evaluation.examples, evaluation.predictions, strict=True):
        yield json.dumps({**_input_fields(example), **prediction}, ensure_ascii=False)


def _input_fields(example: Any) -> dict[str, Any]:
    """The input fields of an example, and its label if known; the context of a question is omitted for size."""
    match example:
        case TaggedSentence():
            known = example.tags
            asked: dict[str, Any] = {"words": list(example.words)}
        case Question():
            known = None if example.answers is None else tuple(answer.text for answer in example.answers)
            asked = {"question": example.question}
        case _:
            known, asked = example.label, example_fields(example)
    return {"id": example.id, **asked} | ({} if known is None else {"true": known})
