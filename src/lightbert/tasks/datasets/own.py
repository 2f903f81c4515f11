"""The user's own files as a task: single texts, pairs of texts, or sentences with tags.

What is asked is `data.kind`, or with "auto" what the training file looks like: sentences with tags if it has CoNLL's
columns or, beside no text, lists of words and of tags; else by the labels (`label_cells.guess_kind`). Labels are those
of the whole training file. A label or tag of another file that is none of them makes a bad row.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from lightbert.data.text.tables import FORMATS, Table, table_format
from lightbert.errors import InputError
from lightbert.tasks.datasets.conll import read_sentences
from lightbert.tasks.datasets.held_out import hold_out
from lightbert.tasks.datasets.label_cells import in_order
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.datasets.own_texts import learn_texts, read_texts
from lightbert.tasks.datasets.task import Task
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.kinds.tokens.entities import mark_entities
from lightbert.tasks.kinds.tokens.kind import Tokens

_METRICS = {"classify": "accuracy", "labels": "micro_f1", "regress": "pearson"}
_COLUMN_FILES = ("", ".conll", ".conllu", ".iob", ".iob1", ".iob2", ".bio", ".bioes", ".ner", ".pos", ".txt")


def own_task(data: str | Files, *, kind: Kind[Any] | None = None, name: str = "own") -> Task:
    """Open files, or what `Files.at` finds at a path.

    `kind` is that of a model to be judged; None means to learn it from the training file, which is then read at once.
    Other files are read when their split is asked for. Without `data.dev` a part of the training file is held out.
    """
    files = data if isinstance(data, Files) else Files.at(data)
    if kind is None:
        kind, examples = _learn(files)
        whole: Callable[[], list[Any]] = partial(list, examples)
    else:
        whole = partial(_read, files.train, files, kind)
    splits: dict[str, Callable[[], list[Any]]] = {}
    if files.train and files.hold_out and not files.dev:
        splits["train"] = lambda: hold_out(whole(), files.hold_out)[0]
        splits["dev"] = lambda: hold_out(whole(), files.hold_out)[1]
    elif files.train:
        splits["train"] = whole
    if files.dev:
        splits["dev"] = partial(_read, files.dev, files, kind)
    if files.test:
        splits["test"] = partial(_read, files.test, files, kind, test=True)
    return Task(name, kind, splits, _metric(kind))


def _learn(files: Files) -> tuple[Kind[Any], list[Any]]:
    if not files.train:
        raise InputError("there is no data.train to learn the labels from; add data.train=FILE")
    if not _has_sentences(files):
        return learn_texts(files.train, files)
    sentences = read_sentences(files.train, files)
    tags = in_order([tag for sentence in sentences for tag in sentence.tags or ()])
    if len(tags) < 2:
        raise InputError(f"'{files.train}' has no tag but {', '.join(tags) or 'none'}; training needs at least two")
    return Tokens(tags), sentences


def _read(path: str, files: Files, kind: Kind[Any], *, test: bool = False) -> list[Any]:
    if isinstance(kind, Tokens):
        return read_sentences(path, files, kind.labels, test=test)
    return read_texts(path, files, kind, test=test)


def _has_sentences(files: Files) -> bool:
    if files.kind != "auto":
        return files.kind == "tokens"
    if table_format(files.train) not in FORMATS:
        if table_format(files.train) in _COLUMN_FILES:
            return True
        raise InputError(
            f"cannot tell what '{files.train}' is; name it {', '.join(FORMATS)}, or set data.kind=tokens if it has "
            "CoNLL's columns"
        )
    columns = Table(files.train, separator=files.separator).columns()
    return files.text not in columns and {files.words, files.tags} <= set(columns)


def _metric(kind: Kind[Any]) -> str:
    if isinstance(kind, Tokens):
        return "f1" if mark_entities(kind.labels) else "accuracy"
    if kind.name not in _METRICS:
        raise InputError(f"files of one's own hold no tasks of the kind {kind.name!r}; give the task's name")
    return _METRICS[kind.name]
