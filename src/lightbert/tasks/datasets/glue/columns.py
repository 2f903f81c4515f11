"""Map the columns of GLUE files, and of their copies on the Hub, to examples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightbert.errors import InputError
from lightbert.tasks.datasets.glue.table import HIGH, LOW, Row
from lightbert.tasks.example import Example

_IDS = ("index", "id", "idx")


@dataclass(frozen=True)
class Columns:
    """The indices of the columns with the texts, the label and the id; None if there is no such column."""

    first: int
    second: int | None
    label: int | None
    id: int | None
    count: int


def find_columns(names: Sequence[str], row: Row) -> Columns | None:
    """Find the columns of a task in a header, ignoring case; None if a text column is missing."""
    indices = {name.strip().lower(): index for index, name in reversed(list(enumerate(names)))}

    def index_of(candidates: Sequence[str]) -> int | None:
        return next((indices[name] for name in candidates if name in indices), None)

    first, second = index_of(row.first), index_of(row.second)
    if first is None or (row.second and second is None):
        return None
    return Columns(first, second, index_of(row.label), index_of(_IDS), len(names))


def example_of(cells: Sequence[str], columns: Columns, row: Row, number: int) -> Example:
    """Convert a row to an example; ``number`` is the id if there is no id column.

    The message of an error continues a sentence that begins with "line 7 of 'dev.tsv'".
    """
    if len(cells) != columns.count:
        raise InputError(f"must have {columns.count} columns, has {len(cells)}")
    return Example(
        text=cells[columns.first],
        text_b=None if columns.second is None else cells[columns.second],
        label=None if columns.label is None else _label(cells[columns.label], row.labels),
        id=str(number) if columns.id is None else cells[columns.id],
    )


def _label(cell: str, labels: Mapping[str, str]) -> str | float:
    if not labels:
        return _score(cell)
    if cell not in labels:
        raise InputError(f"has the label {cell!r}, which must be one of {', '.join(labels)}")
    return labels[cell]


def _score(cell: str) -> float:
    try:
        score = float(cell)
    except ValueError:
        score = math.nan
    if not LOW <= score <= HIGH:
        raise InputError(f"has the score {cell!r}, which must be a number in [{LOW:g}, {HIGH:g}]")
    return score
