"""Parse the cells of a label column, and infer the kind of task from them.

An invalid cell raises a `ValueError` whose message continues a sentence that begins with "line 7 of 'my.csv'".
"""

import ast
import difflib
import math
import re
from collections.abc import Collection, Sequence
from typing import Any, Literal

_SEPARATORS = ("|", ";", ",", "/")

Label = str | float | tuple[str, ...]
LabelKind = Literal["classify", "labels", "regress"]

# Fractions are classes rather than regression targets if there are few distinct ones, with several rows each.
_MAX_NUMERIC_CLASSES = 10
_MIN_ROWS_PER_CLASS = 3
_MIN_NUMERIC_SHARE = 0.9
# How tables write a number that is missing.
_MISSING = ("", "nan", "na", "n/a", "none", "null")


def infer_kind(cells: Sequence[Any]) -> LabelKind:
    """Infer the kind of task from the training labels.

    Lists mean multi-label classification. Numbers mean regression if some are not integers and there are more than ten
    distinct values, or more than one for every three rows; up to 10 % of the cells may be non-numeric, and any number
    may be missing (empty or "nan"), and are bad rows then. Everything else means classification, including any number
    of distinct integers.
    """
    if any(isinstance(cell, list) for cell in cells):
        return "labels"
    numbers = [number for cell in cells if (number := parse_number(cell)) is not None]
    distinct = len(set(numbers))
    many = distinct > _MAX_NUMERIC_CLASSES or distinct * _MIN_ROWS_PER_CLASS > len(numbers)
    has_fractions = not all(number.is_integer() for number in numbers)
    present = sum(str(cell).strip().lower() not in _MISSING for cell in cells)
    return "regress" if many and has_fractions and len(numbers) >= _MIN_NUMERIC_SHARE * present else "classify"


def as_list(cell: Any) -> Any:
    """Parse a text that is a list, as pandas writes lists to a CSV file; return other cells as they are."""
    if not isinstance(cell, str) or not cell.startswith("[") or not cell.endswith("]"):
        return cell
    try:
        items = ast.literal_eval(cell)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return cell
    # NumPy writes no commas, and Python joins 'a' 'b'.
    joined = re.search(r"""['"]\s+['"]""", cell)
    return items if not joined and all(type(item) in (str, int, float) for item in items) else cell


def parse_label(cell: Any, kind: str, separator: str) -> Label:
    """Parse a cell as a class, a number, or a set of labels; `separator` splits a multi-label cell of text."""
    if kind == "labels":
        return label_names(cell, separator)
    if kind == "classify":
        return label_name(cell)
    number = parse_number(cell)
    if number is None:
        raise ValueError(f"has the label {cell!r}, which must be a number")
    return number


def label_name(cell: Any) -> str:
    """The name of a class: texts are stripped, 1 and 1.0 become "1", and true becomes "true"."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and not math.isfinite(cell):
        # How tables store missing values.
        raise ValueError(f"has the label {cell}, which must be a finite number")
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if not isinstance(cell, str | int | float):
        raise ValueError(f"has the label {cell!r}, which must be a text or a number")
    if not str(cell).strip():
        raise ValueError("has no label")
    return str(cell).strip()


def label_names(cell: Any, separator: str) -> tuple[str, ...]:
    """The distinct labels of a multi-label cell; may be empty."""
    parts = [part for part in cell.split(separator) if part.strip()] if isinstance(cell, str) else cell
    return tuple(dict.fromkeys(label_name(part) for part in (parts if isinstance(parts, list) else [parts])))


def parse_number(cell: Any) -> float | None:
    """Parse a cell as a finite number; None if it isn't one."""
    # float() accepts 1_2.
    if isinstance(cell, bool) or not isinstance(cell, str | int | float) or "_" in str(cell):
        return None
    try:
        number = float(cell)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def sort_labels(names: Collection[str]) -> tuple[str, ...]:
    """The distinct names, sorted; numerically if all are numbers, so that 2 comes before 10."""
    if all(parse_number(name) is not None for name in names):
        return tuple(sorted(set(names), key=lambda name: (float(name), name)))
    return tuple(sorted(set(names)))


def separator_of_joined(names: Collection[str]) -> str:
    """The separator if some names seem to be several labels in one cell, such as "a|b" next to "a" and "b"; or ""."""
    for separator in _SEPARATORS:
        parts = {part.strip() for name in names for part in name.split(separator)}
        if len(parts) < len(names) and any(separator in name for name in names):
            return separator
    return ""


def unknown_label(what: str, name: str, known: Collection[str]) -> str:
    """The reason to reject a label that isn't known; "" if it is."""
    if name in known:
        return ""
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return f"has the {what} {name!r}, which must occur in the training data{hint}"
