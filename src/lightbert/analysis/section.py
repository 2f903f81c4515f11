"""The result of an analysis: pictures with captions, tables and metrics."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lightbert.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = str | float | None


class NotApplicableError(InputError):
    """An analysis that a model or its inputs don't allow, with the reason in one sentence."""


@dataclass(frozen=True)
class Picture:
    """A figure that is drawn when it is written."""

    name: str
    """A part of the file name."""
    caption: str
    """One or two sentences on how to read the figure."""
    draw: Callable[[], "Figure"]


@dataclass(frozen=True)
class Table:
    """Rows of names and numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]


@dataclass(frozen=True)
class Section:
    """One analysis of a report; `details` appear in the JSON only."""

    name: str
    title: str
    summary: str
    """What is computed, in one or two sentences."""
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def file_name(text: str) -> str:
    """A text as a part of a file name: its words, joined by hyphens."""
    return "-".join(re.findall(r"\w+", text))


def format_cell(cell: Cell) -> str:
    """A cell as text; numbers have four digits."""
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:.4g}"
