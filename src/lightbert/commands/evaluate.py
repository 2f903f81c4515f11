"""`evaluate` without a model: score prediction files, or collect them for the GLUE leaderboard."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lightbert.commands.options import (
    CommaSeparated,
    check_file,
    check_model,
    check_unused,
    options,
    options_in_errors,
    stored_task,
)
from lightbert.commands.report import Printable, Report, show
from lightbert.errors import InputError
from lightbert.tasks.kinds import KindName

if TYPE_CHECKING:
    from lightbert.tasks.datasets.own_files import Files
    from lightbert.tasks.kinds.kind import Task
    from lightbert.tasks.predict.predictor import Described


def score(
    predictions: Path, task: str, data: str, split: str, *, bad_rows: "BadRows" = "error", na_probs: Path | None = None
) -> Report:
    """Score a file of predictions: SQuAD by the official rules, a GLUE table by the metrics of the task."""
    from lightbert.tasks.datasets import open_task, squad
    from lightbert.tasks.datasets.glue import find
    from lightbert.tasks.datasets.glue_results import read_predictions

    if not (task and data):
        raise InputError(f"scoring '{predictions}' requires a task and its data; add --task and --data")
    if task in ("squad", "squad2"):
        return _scores(task, squad.score(data, predictions, na_probs))
    if find(task) is None:
        raise InputError(f"--predictions requires the task squad, squad2 or one of GLUE, got {task!r}")
    opened = open_task(task, data, bad_rows=bad_rows)
    examples = opened.examples(split)
    predicted = read_predictions(predictions, opened, examples)
    return _scores(opened.name, opened.kind.metrics(examples, predicted), examples.skipped)


def collect(folder: Path | None, path: Path) -> Report:
    """Collect the tables of a folder in one zip file."""
    from lightbert.tasks.datasets import glue_results

    if folder is None:
        raise InputError("--submission requires a folder of GLUE tables; add --predictions FOLDER")
    submission = glue_results.collect(folder, path)
    missing = f"; the leaderboard also requires {', '.join(submission.missing)}" if submission.missing else ""
    return Report(
        {
            "submission": str(submission.path),
            "tables": list(submission.written),
            "missing": list(submission.missing),
            "metrics": {},
        },
        [f"'{submission.path}' contains {', '.join(submission.written)}{missing}"],
    )


def _scores(task: str, metrics: dict[str, float], skipped: int = 0) -> Report:
    from lightbert.tasks.kinds.kind import Table

    rows: list[tuple[str, Any]] = [*metrics.items(), ("skipped rows", skipped)]
    content = {"task": task, "metrics": metrics, "skipped": skipped}
    return Report(content, [Table(task, ("metric", "value"), rows)])


BadRows = Literal["error", "skip"]
_OWN = ("own", "tokens")
_NAMED = ("classify", "tokens")
_VECTORS: dict[str, tuple[str, ...]] = {
    "sts": ("text", "text_b", "label", "separator", "header", "encoding"),
    "pairs": ("text", "text_b", "separator", "header", "encoding"),
    "clustering": ("text", "label", "separator", "header", "encoding"),
    "retrieval": (),
}
"""The tasks of `lightbert.tasks.predict.vector_evaluation`, and the options for the columns of their tables."""


@dataclass(frozen=True)
class Config:
    """The options of the command: a model or predictions, a task, and the files to write."""

    model: Annotated[
        str | None, typer.Argument(help="A fine-tuned model: a folder, an exported file, or org/name on the Hub.")
    ] = None
    task: Annotated[
        str,
        typer.Option(
            help="cola, sst2, …, squad, squad2, own; for vectors sts, pairs, clustering, retrieval; "
            "default: the task of the model."
        ),
    ] = ""
    data: Annotated[str, typer.Option(help="The folder or file of the task, or your own table.")] = ""
    split: Annotated[str, typer.Option(help="dev, dev_mismatched, test, …")] = "dev"
    kind: Annotated[
        KindName, typer.Option(help="The kind of labels, for a classifier that doesn't specify it; auto: by the model.")
    ] = "auto"
    text: Annotated[str | None, typer.Option(help="Own tables: the column of the text [text].")] = None
    text_b: Annotated[str | None, typer.Option(help="Own tables: the column of the second text [none].")] = None
    label: Annotated[str | None, typer.Option(help="Own tables: the column of the label [label].")] = None
    label_separator: Annotated[
        str | None, typer.Option(help="Own tables: the separator between several labels in one cell [;].")
    ] = None
    separator: Annotated[str | None, typer.Option(help="The field separator of .csv files [,].")] = None
    header: Annotated[
        str | None, typer.Option(help="none: own tables have no header; the columns are 0, 1, 2, … [first].")
    ] = None
    encoding: Annotated[str | None, typer.Option(help="The encoding of own files, such as latin-1 [utf-8].")] = None
    words: Annotated[str | None, typer.Option(help="Tagging: the column with the list of words [words].")] = None
    tags: Annotated[str | None, typer.Option(help="Tagging: the column with the list of tags [tags].")] = None
    word_column: Annotated[int | None, typer.Option(help="CoNLL files: the index of the word column [0].")] = None
    tag_column: Annotated[
        int | None, typer.Option(help="CoNLL files: the index of the tag column; negative: from the end [-1].")
    ] = None
    comments: Annotated[str | None, typer.Option(help="CoNLL files: the prefix of comment lines [none].")] = None
    bad_rows: Annotated[BadRows, typer.Option(help="Raise an error for a bad row, or skip and count it.")] = "error"
    labels: Annotated[
        tuple[str, ...],
        typer.Option(help="Label names of a model that has none, in order: negative,positive."),
        CommaSeparated(),
    ] = ()
    batch: Annotated[int, typer.Option(help="Rows of 128 tokens per batch; 0: chosen for the device.")] = 0
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto"
    worst: Annotated[int, typer.Option(help="Number of worst errors to show.")] = 20
    out: Annotated[Path | None, typer.Option(help="Write report.json, report.md and predictions here.")] = None
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files in --out that lightbert did not write.")
    ] = False
    predictions: Annotated[
        Path | None, typer.Option(help="A prediction file instead of a model: SQuAD's JSON or a GLUE table.")
    ] = None
    na_probs: Annotated[Path | None, typer.Option(help="SQuAD 2.0: a JSON file {id: probability of no answer}.")] = None
    submission: Annotated[
        Path | None, typer.Option(help="Collect the GLUE tables in the folder --predictions in this zip file.")
    ] = None


def run(config: Config) -> Printable:
    """Evaluate a model, or score or collect predictions."""
    _check_options(config)
    if config.submission is not None:
        return collect(config.predictions, config.submission)
    with options_in_errors():
        if config.predictions is not None:
            open_data = (config.task, config.data, config.split)
            return score(config.predictions, *open_data, bad_rows=config.bad_rows, na_probs=config.na_probs)
        if config.model is None:
            raise InputError("evaluate requires a model or predictions; give a model folder, or --predictions FILE")
        check_file(config.data)
        check_model(config.model)
        _check_table(config, stored_task(config.model))
        evaluate = _evaluate_vectors if config.task in _VECTORS else _evaluate
        return evaluate(config, config.model)


def _check_options(config: Config) -> None:
    """Check that the evaluation uses all options."""
    if config.submission is not None:
        check_unused(config, {"predictions", "submission"}, "with --submission")
    elif config.predictions is not None:
        used = {"na_probs"} if config.task.startswith("squad") else {"split", "bad_rows"}
        task = f" and --task {config.task}" if config.task else ""
        check_unused(config, {"predictions", "task", "data", *used}, f"with --predictions{task}")
    elif config.task in _VECTORS:
        used = {"model", "task", "data", "split", "bad_rows", "batch", "device", "out"}
        check_unused(config, used | set(_VECTORS[config.task]), f"with --task {config.task}")
    else:
        every = {field.name for field in fields(config)}
        check_unused(config, every - {"na_probs"}, "without --predictions")
        if config.out is None:
            check_unused(config, every - {"overwrite"}, "without --out")


def _evaluate_vectors(config: Config, path: str) -> Printable:
    """Evaluate the vectors of any model; its report is printed only."""
    from lightbert.config import from_mapping
    from lightbert.tasks.datasets.own_files import Files
    from lightbert.tasks.predict.exported import load_on
    from lightbert.tasks.predict.vector_evaluation import evaluate_vectors

    if not config.data:
        raise InputError(f"--task {config.task} requires data; add --data FILE or FOLDER")
    if config.out is not None:
        raise InputError(f"--task {config.task} writes no files, got --out '{config.out}'; use --json")
    model = load_on(path, config.device)
    keys = ("separator", "header", "encoding", "bad_rows")
    files = from_mapping(Files, {"dev": config.data, **{key: value for key in keys if (value := getattr(config, key))}})
    columns = {"text": config.text, "text_b": config.text_b, "label": config.label}
    return evaluate_vectors(
        config.task, model, files, split=config.split, columns=columns, batch=config.batch, name=path
    )


def _evaluate(config: Config, path: str) -> Report:
    from lightbert.files import check_not_input, check_outputs, make_folder
    from lightbert.tasks.predict.evaluation import evaluate, output_names, write
    from lightbert.tasks.predict.exported import load_on

    model = load_on(path, config.device)
    task = task_of(config, model)
    if config.out is not None:
        # An error is raised before an evaluation that may take hours.
        make_folder(config.out)
        names = output_names(task, config.split)
        for name in names:
            check_not_input(config.out / name, config.data)
        check_outputs(config.out, names, overwrite=config.overwrite)
    evaluation = evaluate(
        model,
        task,
        config.split,
        batch=config.batch,
        device=config.device,
        worst=config.worst,
        labels=config.labels,
        name=path,
        data=config.data,
    )
    files = write(evaluation, config.out) if config.out is not None else []
    written = [f"written: {', '.join(map(str, files))}"] if files else []
    content = {**evaluation.to_json(), "files": [str(path) for path in files]}
    return Report(content, [*evaluation.tables(), *written])


def task_of(config: Config, model: "Described") -> "Task":
    """The task given, or the one the model was fine-tuned for; a single file is a table of the user."""
    from lightbert.tasks.datasets import open_task
    from lightbert.tasks.datasets.own import own_task
    from lightbert.tasks.datasets.own_files import READING
    from lightbert.tasks.predict.predictor import kind_by_name

    stored = str(model.task.get("task", "own"))
    name = config.task or ("own" if Path(config.data).is_file() and not stored.startswith("squad") else stored)
    if name not in _OWN:
        columns = [key for key in (*READING, "encoding") if getattr(config, key) is not None]
        if unused := [*columns, *(["kind"] if config.kind != "auto" else [])]:
            raise InputError(
                f"data.{unused[0]} is for own files, but the task is {name!r}; leave it out, or add --task own"
            )
        return open_task(name, config.data, bad_rows=config.bad_rows)
    if not config.data:
        raise InputError("evaluate requires data; add --data FILE, or --task NAME --data FOLDER")
    files = _files(config, model.task)
    kind = kind_by_name(model, config.kind, config.labels)
    if kind.head in _NAMED and not ("task" in model.task or model.labels or config.labels):
        names = ", ".join(kind.description()["labels"])
        raise InputError(
            f"the outputs of the model have no label names ({names}); add --labels with a name for each, in this order"
        )
    return own_task(files, kind=kind, name=name)


def _files(config: Config, task: Mapping[str, Any]) -> "Files":
    """The files of the user, read as in training unless options say otherwise."""
    from lightbert.config import from_mapping, to_mapping
    from lightbert.tasks.datasets.own_files import READING, Files

    files = Files.at(config.data) if Path(config.data).is_dir() else Files(dev=config.data, test=config.data)
    columns = {key: value for key in (*READING, "encoding") if (value := getattr(config, key)) is not None}
    return from_mapping(Files, {**to_mapping(files), **task.get("data", {}), **columns, "bad_rows": config.bad_rows})


def _check_table(config: Config, task: Mapping[str, Any] | None) -> None:
    """Check the columns of a single table before torch is imported, if the folder of the model says what it needs."""
    if not task or task.get("kind") == "spans" or config.task not in ("", *_OWN) or not Path(config.data).is_file():
        return
    from lightbert.tasks.datasets.own import check_table

    check_table(config.data, _files(config, task), str(task.get("kind", "")), test=config.split == "test")


@options(Config)
def command(config: Config, json: bool) -> None:
    """Evaluate a model, or a file of predictions, on a task.

    For a model: metrics, confusion matrix, calibration and the worst errors. For --predictions without a model: the
    official SQuAD scores, or the metrics of the task. With --split test and --out, the predictions of a GLUE task are
    written in the format of the leaderboard; --submission collects several of these files in one zip file.

    For the vectors of any model: --task sts correlates cosines with the scores of pairs of texts; pairs ranks the
    second text of each pair among all; clustering compares clusters of texts with their labels; retrieval ranks the
    documents of a BEIR folder for its queries, and compares with BM25.

    Own files are read as in fine-tuning, which is saved with the model: the same columns, separators and kind of
    labels, or for other models the values in brackets. The options change single values.
    """
    show(run(config), json=json)
