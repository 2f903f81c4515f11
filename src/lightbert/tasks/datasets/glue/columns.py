"""From the columns of a GLUE file, or of its copy on the hub, to an example."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightbert.errors import InputError
from lightbert.tasks.datasets.glue.table import HIGH, LOW, Row
from lightbert.tasks.example import Example

_IDS = ("index", "id", "idx")


@dataclass(frozen=True)
class Columns:
    """Where in a row the texts, the label and the name of an example are; None where there is no such column."""

    first: int
    second: int | None
    label: int | None
    id: int | None
    count: int


def find_columns(names: Sequence[str], row: Row) -> Columns | None:
    """Find a task's columns among the names of a header, whatever their case; None if a text is not among them."""
    places = {name.strip().lower(): place for place, name in reversed(list(enumerate(names)))}

    def place_of(candidates: Sequence[str]) -> int | None:
        return next((places[name] for name in candidates if name in places), None)

    first, second = place_of(row.first), place_of(row.second)
    if first is None or (row.second and second is None):
        return None
    return Columns(first, second, place_of(row.label), place_of(_IDS), len(names))


def example_of(cells: Sequence[str], columns: Columns, row: Row, number: int) -> Example:
    """Make an example of a row; ``number`` is its name when it has none of its own.

    What is wrong with a row is raised in words that go on where "line 7 of 'dev.tsv'" ends.
    """
    if len(cells) != columns.count:
        raise InputError(f"has {len(cells)} columns where there should be {columns.count}")
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
        raise InputError(f"has the label {cell!r}, which is none of {', '.join(labels)}")
    return labels[cell]


def _score(cell: str) -> float:
    try:
        score = float(cell)
    except ValueError:
        score = math.nan
    if not LOW <= score <= HIGH:
        raise InputError(f"has the score {cell!r}, which is no number from {LOW:g} to {HIGH:g}")
    return score
