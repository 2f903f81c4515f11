"""Custom tables: texts or pairs of texts with labels."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lightbert.data.tables import Table
from lightbert.errors import InputError
from lightbert.tasks.datasets.label_cells import Label, as_list, infer_kind, parse_label, sort_labels, unknown_label
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.example import Example, Examples
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.kinds.labels import Labels
from lightbert.tasks.kinds.regress import Regress

_Row = tuple[int, Example, Any]
"""The row number, the texts, and the label cell (None if missing)."""


def read_training_texts(path: str, files: Files) -> tuple[Kind[Any], Examples[Example]]:
    """Read the training file, and infer the kind of task and the labels from it."""
    with _table(path, files, test=False) as table:
        rows = list(_rows(table, files))
        kind = infer_kind([cell for _, _, cell in rows]) if files.kind == "auto" else files.kind
        examples = Examples(_add_labels(rows, table, kind, files.label_separator))
        table.require_some(len(examples))
        examples.skipped = table.skipped
    return _make_kind(kind, [example.label for example in examples if example.label is not None], path), examples


def read_texts(path: str, files: Files, kind: Kind[Any], *, test: bool = False) -> Examples[Example]:
    """Read another file; only a `test` file may have no labels."""
    known = None if isinstance(kind, Regress) else kind.description()["labels"]
    with _table(path, files, test=test) as table:
        rows = list(_rows(table, files))
        if test and _empty_is_unknown(rows, kind):
            rows = [(number, example, None if cell == "" else cell) for number, example, cell in rows]
        examples = Examples(_add_labels(rows, table, kind.name, files.label_separator, known))
        table.require_some(len(examples))
        examples.skipped = table.skipped
    return examples


def _empty_is_unknown(rows: Sequence[_Row], kind: Kind[Any]) -> bool:
    """Whether an empty cell of a test file is an unknown label; next to sets of labels it is an empty set."""
    return not isinstance(kind, Labels) or all(cell in ("", None) for _, _, cell in rows)


def _table(path: str, files: Files, *, test: bool) -> Table:
    required = {"data.text": files.text}
    if files.text_b:
        required["data.text_b"] = files.text_b
    label = _label_column(Table(path, separator=files.separator), files)
    if not test:
        required["data.label"] = label
    return Table(path, required, optional=[label], separator=files.separator, bad_rows=files.bad_rows)


def _label_column(table: Table, files: Files) -> str:
    """The label column; "labels" if the default column "label" doesn't exist."""
    columns = table.columns()
    return "labels" if files.label == "label" and "label" not in columns and "labels" in columns else files.label


def _rows(table: Table, files: Files) -> Iterator[_Row]:
    label = _label_column(table, files)
    for number, values in table:
        first, second = values[files.text], values[files.text_b] if files.text_b else None
        if problem := _check_text(first, files.text) or (_check_text(second, files.text_b) if files.text_b else ""):
            table.reject(number, problem)
        else:
            yield number, Example(first, second, id=str(number)), as_list(values.get(label))


def _check_text(cell: Any, column: str) -> str:
    """The reason to reject a cell that isn't a text; "" if it is one."""
    if not isinstance(cell, str):
        return f"has {cell!r} in column {column!r}, which must be a text"
    return "" if cell.strip() else f"has no text in column {column!r}"


def _add_labels(
    rows: Iterable[_Row], table: Table, kind: str, separator: str, known: Collection[str] | None = None
) -> Iterator[Example]:
    """Add labels to examples; a row with an invalid or unknown label is rejected."""
    for number, example, cell in rows:
        if cell is None:
            yield example
            continue
        try:
            label = parse_label(cell, kind, separator)
        except ValueError as error:
            table.reject(number, str(error))
            continue
        names = [label] if isinstance(label, str) else label if isinstance(label, tuple) else []
        unexpected = next((name for name in names if known is not None and name not in known), None)
        if unexpected is None:
            yield replace(example, label=label)
        else:
            table.reject(number, unknown_label("label", unexpected, known or ()))


def _make_kind(name: str, labels: Sequence[Label], path: str) -> Kind[Any]:
    """Create the kind, with the sorted labels or the range of the numbers."""
    if name == "regress":
        numbers = [float(label) for label in labels if not isinstance(label, tuple)]
        if min(numbers) == max(numbers):
            raise InputError(f"regression requires at least two distinct numbers, got only {numbers[0]:g} in '{path}'")
        return Regress(min(numbers), max(numbers))
    names = sort_labels([each for label in labels for each in (label if isinstance(label, tuple) else [str(label)])])
    if len(names) < 2:
        raise InputError(f"training requires at least two labels, got {', '.join(names) or 'none'} in '{path}'")
    return Labels(names) if name == "labels" else Classify(names)
