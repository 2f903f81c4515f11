"""Custom files as a task: single texts, pairs of texts, or sentences with tags.

The kind of task is `data.kind`. With "auto" it is inferred from the training file: tagging if the file has CoNLL
columns, or lists of words and of tags but no text column; otherwise from the labels (`label_cells.infer_kind`).
The labels are those of the whole training file. A row of another file with any other label or tag is a bad row.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from lightbert.data.tables import FORMATS, Table, table_format
from lightbert.errors import InputError
from lightbert.tasks.datasets.conll import check_columns, read_sentences
from lightbert.tasks.datasets.held_out import hold_out
from lightbert.tasks.datasets.label_cells import sort_labels
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.datasets.own_texts import read_texts, read_training_texts
from lightbert.tasks.datasets.task import Task
from lightbert.tasks.example import Examples
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.kinds.tokens.kind import Tokens, are_entity_tags

_METRICS = {"classify": "accuracy", "labels": "micro_f1", "regress": "pearson"}
_CONLL_SUFFIXES = ("", ".conll", ".conllu", ".iob", ".iob1", ".iob2", ".bio", ".bioes", ".ner", ".pos", ".txt")


def own_task(data: str | Files, *, kind: Kind[Any] | None = None, name: str = "own") -> Task:
    """Open `Files`, or the files that `Files.at` finds at a path.

    kind: the kind of the model to evaluate; None infers it from the training file, which is then read at once.
    Other files are read when their split is requested. Without `data.dev`, a part of the training file is held out.
    """
    files = data if isinstance(data, Files) else Files.at(data)
    if kind is None:
        kind, examples = _read_training_data(files)
        read_train: Callable[[], list[Any]] = partial(Examples, examples, examples.skipped)
    else:
        read_train = partial(_read, files.train, files, kind)
    splits: dict[str, Callable[[], list[Any]]] = {}
    if files.train and files.hold_out and not files.dev:
        splits["train"] = lambda: hold_out(read_train(), files.hold_out)[0]
        splits["dev"] = lambda: hold_out(read_train(), files.hold_out)[1]
    elif files.train:
        splits["train"] = read_train
    if files.dev:
        splits["dev"] = partial(_read, files.dev, files, kind)
    if files.test:
        splits["test"] = partial(_read, files.test, files, kind, test=True)
    return Task(name, kind, splits, _metric(kind), reading=files.reading())


def _read_training_data(files: Files) -> tuple[Kind[Any], Examples[Any]]:
    if not files.train:
        raise InputError("the labels are read from data.train, which is not set; add data.train=FILE")
    if not _has_sentences(files):
        return read_training_texts(files.train, files)
    sentences = read_sentences(files.train, files)
    tags = sort_labels([tag for sentence in sentences for tag in sentence.tags or ()])
    if len(tags) < 2:
        raise InputError(f"training requires at least two tags, got {', '.join(tags) or 'none'} in '{files.train}'")
    return Tokens(tags), sentences


def _read(path: str, files: Files, kind: Kind[Any], *, test: bool = False) -> Examples[Any]:
    if isinstance(kind, Tokens):
        return read_sentences(path, files, kind.labels, test=test)
    return read_texts(path, files, kind, test=test)


def _has_sentences(files: Files) -> bool:
    if files.kind != "auto":
        if files.kind == "tokens" and table_format(files.train) not in FORMATS and files.bad_rows == "error":
            check_columns(files.train, files)
        return files.kind == "tokens"
    if table_format(files.train) not in FORMATS:
        if table_format(files.train) in _CONLL_SUFFIXES:
            check_columns(files.train, files)
            return True
        remedy = "write one JSON object per line" if table_format(files.train) == ".json" else "save it as one of these"
        raise InputError(
            f"the name of '{files.train}' must end in {', '.join(FORMATS)}; {remedy}, or if it has CoNLL columns, set "
            "data.kind=tokens"
        )
    columns = Table(files.train, separator=files.separator).columns()
    return files.text not in columns and {files.words, files.tags} <= set(columns)


def _metric(kind: Kind[Any]) -> str:
    if isinstance(kind, Tokens):
        return "f1" if are_entity_tags(kind.labels) else "accuracy"
    if kind.name not in _METRICS:
        raise InputError(f"custom files don't support tasks of kind {kind.name!r}; give the name of the task")
    return _METRICS[kind.name]
