"""Evaluation of a model on a split of a task, and its report as JSON, Markdown and terminal tables."""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.errors import InputError
from lightbert.files import list_outputs, make_folder, write_atomic
from lightbert.progress import progress
from lightbert.tasks.datasets.glue import TABLE
from lightbert.tasks.datasets.glue_results import table_name, write_predictions
from lightbert.tasks.datasets.squad import N_BEST, NULL_ODDS, PREDICTIONS, write_answers
from lightbert.tasks.example import Question, TaggedSentence, is_labelled
from lightbert.tasks.kinds.kind import Finding, Kind, Prediction, Table, Task, example_fields
from lightbert.tasks.predict.inputs import check_count, check_pairs
from lightbert.tasks.predict.predictor import Described, encoder_of, kind_of_model, runtime_of
from lightbert.tasks.predict.runtime import Runtime, run

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
    worst: int = 20
    """The number of worst errors to show."""
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
            # Without errors to show, a table of them would say "None."
            *(
                table
                for finding in self.findings
                if finding.key != "most_wrong" or self.worst
                for table in finding.tables
            ),
            counts,
        ]


def output_names(task: Task, split: str) -> list[str]:
    """The files that `write` may write for a task."""
    answers = [PREDICTIONS, NULL_ODDS, N_BEST] if Question in task.kind.inputs else []
    return [*FILES, *answers, *([table_name(task.name, split)] if task.name in TABLE else [])]


def write(evaluation: Evaluation, folder: str | Path) -> list[Path]:
    """Write an evaluation to a folder, each file atomically, and return the paths.

    predictions.jsonl has one line per example; report.json and report.md are written if the labels are known. SQuAD
    adds files in its own format, and a test set of GLUE adds the leaderboard's table, such as RTE.tsv. Other files of
    the folder are kept, so that one folder can collect the tables of all tasks.
    """
    folder = Path(folder)
    make_folder(folder)
    rows = zip(evaluation.examples, evaluation.predictions, strict=True)
    lines = (json.dumps({**_input_fields(example), **row}, ensure_ascii=False) + "\n" for example, row in rows)
    contents = {FILES[0]: "".join(lines)}
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


# Large enough to batch rows of similar length, small enough to update the progress bar.
_CHUNK = 2048


def evaluate(
    model: Described,
    task: Task,
    split: str = "dev",
    *,
    batch: int = 0,
    device: str = "auto",
    worst: int = 20,
    labels: Sequence[str] = (),
    name: str = "",
    data: str = "",
    runtime: Runtime | None = None,
) -> Evaluation:
    """Predict a split, and compute metrics and findings if its labels are known.

    Labels are matched by name; their order in the model doesn't matter.
    batch: batch size in rows of 128 tokens; 0 = chosen for the device.
    worst: the number of worst errors to report.
    labels: names for the outputs of a model without label names.
    name, data: the names of the model and the data in the report.
    runtime: the inference backend, such as an exported file of the model; None = that of the model.
    """
    check_count("batch", batch)
    check_count("worst", worst)
    kind = kind_of_model(model, labels, like=task.kind)
    _check_kind(kind, task)
    examples = task.examples(split)
    check_pairs(examples, model.task)
    labelled = _all_labelled(task, split, examples)
    if labelled:
        _check_labels(kind, task, examples)
    encoder = encoder_of(model)
    runtime = runtime or runtime_of(model, kind.head, device)
    predictions: list[Prediction] = []
    tokens, cut, seconds = 0, 0, 0.0
    with progress("evaluating", total=len(examples), unit="examples") as bar:
        for first in range(0, len(examples), _CHUNK):
            chunk = examples[first : first + _CHUNK]
            features = kind.features(chunk, encoder)
            start = time.perf_counter()
            outputs = run(runtime, features, encoder.specials, batch)
            seconds += time.perf_counter() - start
            predictions += kind.predictions(chunk, features, outputs)
            tokens, cut = tokens + len(features.tokens), cut + features.cut
            bar.advance(len(chunk))
    return Evaluation(
        task=task.name,
        split=split,
        metrics=task.kind.metrics(examples, predictions) if labelled else {},
        examples=examples,
        predictions=predictions,
        findings=kind.findings(examples, predictions, worst) if labelled else (),
        tokens=tokens,
        cut=cut,
        skipped=examples.skipped,
        seconds=seconds,
        worst=worst,
        model=name,
        data=data,
    )


def _all_labelled(task: Task, split: str, examples: Sequence[Any]) -> bool:
    count = sum(is_labelled(example) for example in examples)
    if 0 < count < len(examples) and not split.startswith("test"):
        raise InputError(
            f"all examples of {task.name}, {split}, must have labels, {len(examples) - count:,} of {len(examples):,} "
            "have none: remove them, or predict them as a test set"
        )
    return count == len(examples) > 0


def _check_kind(kind: Kind[Any], task: Task) -> None:
    if type(kind) is not type(task.kind):
        raise InputError(
            f"{task.name} requires a model for tasks of kind {task.kind.name!r}, got one for {kind.name!r}: give a "
            "model that was fine-tuned for it"
        )


def _check_labels(kind: Kind[Any], task: Task, examples: Sequence[Any]) -> None:
    names = getattr(kind, "labels", None)
    if names is None:
        return
    unknown = sorted({label for example in examples for label in _labels(example)} - set(names))
    if unknown:
        raise InputError(
            f"labels of {task.name} must be among those of the model, {', '.join(names)}, got {unknown[0]!r}: give a "
            "model that was fine-tuned for this task, or rename the labels of the model with --labels"
        )


def _labels(example: Any) -> Iterable[str]:
    if isinstance(example, TaggedSentence):
        return example.tags or ()
    return example.label if isinstance(example.label, tuple) else (str(example.label),)
