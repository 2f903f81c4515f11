"""What the cells of a label column mean, and what kind of task they make.

A cell that cannot be used is a `ValueError` whose text goes on where "line 7 of 'my.csv'" ends.
"""

import difflib
import math
from collections.abc import Collection, Sequence
from typing import Any, Literal

Label = str | float | tuple[str, ...]
LabelKind = Literal["classify", "labels", "regress"]

# As many different numbers may still be classes, if there are so many rows to each.
_FEW = 10
_ROWS_PER_CLASS = 3
_NUMBERS_AT_LEAST = 0.9


def guess_kind(cells: Sequence[Any]) -> LabelKind:
    """Tell the kind of a task by its training labels.

    Lists make a multi-label task. Numbers make a regression if some are not whole and many differ: more than ten, or
    more than a third of all; one cell in ten may be no number, and is a bad row then. Everything else makes classes,
    also whole numbers, however many differ.
    """
    if any(isinstance(cell, list) for cell in cells):
        return "labels"
    numbers = [number for cell in cells if (number := as_number(cell)) is not None]
    different = len(set(numbers))
    many = different > _FEW or different * _ROWS_PER_CLASS > len(numbers)
    fractions = not all(number.is_integer() for number in numbers)
    return "regress" if many and fractions and len(numbers) >= _NUMBERS_AT_LEAST * len(cells) else "classify"


def read_label(cell: Any, kind: str, separator: str) -> Label:
    """Turn a cell into a label: a class, a number, or a set of labels, which `separator` parts if the cell is text."""
    if kind == "labels":
        return label_names(cell, separator)
    if kind == "classify":
        return label_name(cell)
    number = as_number(cell)
    if number is None:
        raise ValueError(f"has the label {cell!r}, which is no number")
    return number


def label_name(cell: Any) -> str:
    """The name of a class: texts lose spaces around them, the numbers 1 and 1.0 are "1", true is "true"."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and not math.isfinite(cell):
        # What tables keep where nothing is known.
        raise ValueError(f"has the label {cell}, which is no number")
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if not isinstance(cell, str | int | float):
        raise ValueError(f"has the label {cell!r}, which is neither a text nor a number")
    if not str(cell).strip():
        raise ValueError("has no label")
    return str(cell).strip()


def label_names(cell: Any, separator: str) -> tuple[str, ...]:
    """The labels of a multi-label cell, each once; there may be none."""
    parts = [part for part in cell.split(separator) if part.strip()] if isinstance(cell, str) else cell
    return tuple(dict.fromkeys(label_name(part) for part in (parts if isinstance(parts, list) else [parts])))


def as_number(cell: Any) -> float | None:
    """The finite number that a cell holds, if it does."""
    # Python would take 1_2 for a number.
    if isinstance(cell, bool) or not isinstance(cell, str | int | float) or "_" in str(cell):
        return None
    try:
        number = float(cell)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def in_order(names: Collection[str]) -> tuple[str, ...]:
    """Each name once, sorted; as numbers if all are: 2 before 10."""
    if all(as_number(name) is not None for name in names):
        return tuple(sorted(set(names), key=lambda name: (float(name), name)))
    return tuple(sorted(set(names)))


def absent(what: str, name: str, known: Collection[str]) -> str:
    """Say that a label is not among the known ones; nothing if it is."""
    if name in known:
        return ""
    nearest = difflib.get_close_matches(name, known, n=1)
    guess = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return f"has the {what} {name!r}, which the training data do not have{guess}"
