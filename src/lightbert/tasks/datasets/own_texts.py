"""Tables of the user's own: texts or pairs of texts with their labels."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lightbert.data.text.tables import Table
from lightbert.errors import InputError
from lightbert.tasks.datasets.label_cells import Label, absent, guess_kind, in_order, read_label
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.classify.kind import Classify
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.kinds.labels.kind import Labels
from lightbert.tasks.kinds.regress.kind import Regress

_Row = tuple[int, Example, Any]
"""A row's number, its texts, and the cell of its label, None if it has none."""


def learn_texts(path: str, files: Files) -> tuple[Kind[Any], list[Example]]:
    """Read the training file, and learn from its labels what kind of task it is and which labels there are."""
    with _table(path, files, test=False) as table:
        rows = list(_rows(table, files))
        kind = guess_kind([cell for _, _, cell in rows]) if files.kind == "auto" else files.kind
        examples = list(_labelled(rows, table, kind, files.label_separator))
        table.require_some(len(examples))
    return _kind(kind, [example.label for example in examples if example.label is not None], path), examples


def read_texts(path: str, files: Files, kind: Kind[Any], *, test: bool = False) -> list[Example]:
    """Read another file; only a `test` file may be without labels."""
    known = None if isinstance(kind, Regress) else kind.description()["labels"]
    with _table(path, files, test=test) as table:
        rows = (
            (number, example, None if test and cell == "" else cell) for number, example, cell in _rows(table, files)
        )
        examples = list(_labelled(rows, table, kind.name, files.label_separator, known))
        table.require_some(len(examples))
    return examples


def _table(path: str, files: Files, *, test: bool) -> Table:
    needed = {"text": files.text}
    if files.text_b:
        needed["text_b"] = files.text_b
    label = _label_column(Table(path, separator=files.separator), files)
    if not test:
        needed["label"] = label
    return Table(path, needed, optional=[label], separator=files.separator, bad_rows=files.bad_rows)


def _label_column(table: Table, files: Files) -> str:
    """Where the usual column "label" is missing, "labels" serves."""
    columns = table.columns()
    return "labels" if files.label == "label" and "label" not in columns and "labels" in columns else files.label


def _rows(table: Table, files: Files) -> Iterator[_Row]:
    label = _label_column(table, files)
    for number, values in table:
        first, second = values[files.text], values[files.text_b] if files.text_b else None
        if problem := _no_text(first, files.text) or (_no_text(second, files.text_b) if files.text_b else ""):
            table.reject(number, problem)
        else:
            yield number, Example(first, second, id=str(number)), values.get(label)


def _no_text(cell: Any, column: str) -> str:
    """Say why a cell is no text, as a reason for `reject`; nothing if it is one."""
    if not isinstance(cell, str):
        return f"has {cell!r} in column {column!r}, which is no text"
    return "" if cell.strip() else f"has no text in column {column!r}"


def _labelled(
    rows: Iterable[_Row], table: Table, kind: str, separator: str, known: Collection[str] | None = None
) -> Iterator[Example]:
    """Give examples their labels; a row is bad if its label is none, or is none of those that are known."""
    for number, example, cell in rows:
        if cell is None:
            yield example
            continue
        try:
            label = read_label(cell, kind, separator)
        except ValueError as error:
            table.reject(number, str(error))
            continue
        names = [label] if isinstance(label, str) else label if isinstance(label, tuple) else []
        strange = next((name for name in names if known is not None and name not in known), None)
        if strange is None:
            yield replace(example, label=label)
        else:
            table.reject(number, absent("label", strange, known or ()))


def _kind(name: str, labels: Sequence[Label], path: str) -> Kind[Any]:
    """The kind, with all labels that occur, sorted, or with the range of the numbers."""
    if name == "regress":
        numbers = [float(label) for label in labels if not isinstance(label, tuple)]
        if min(numbers) == max(numbers):
            raise InputError(f"every label of '{path}' is {numbers[0]:g}; a regression needs different numbers")
        return Regress(min(numbers), max(numbers))
    names = in_order([each for label in labels for each in (label if isinstance(label, tuple) else [str(label)])])
    if len(names) < 2:
        raise InputError(f"'{path}' has no label but {', '.join(names) or 'none'}; training needs at least two")
    return Labels(names) if name == "labels" else Classify(names)
