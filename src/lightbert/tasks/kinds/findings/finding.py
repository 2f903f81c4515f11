"""A result of error analysis: plain values for JSON, tables for Markdown and the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lightbert.tasks.example import Example

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Cell = str | int | float | None

_MAX_CELL_LENGTH = 240


@dataclass(frozen=True)
class Table:
    """A titled table that renders as Markdown or in a terminal."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    note: str = ""

    def to_markdown(self) -> str:
        """A heading, the note and a pipe table; "None." if the table is empty."""
        if not self.rows:
            return f"## {self.title}\n\nNone."
        marks = ["---:" if self._is_number(column) else "---" for column in range(len(self.columns))]
        body = [[_escape(format_cell(cell)) for cell in row] for row in self.rows]
        lines = [f"| {' | '.join(cells)} |" for cells in (map(_escape, self.columns), marks, *body)]
        return "\n\n".join(part for part in (f"## {self.title}", self.note, "\n".join(lines)) if part)

    def __rich__(self) -> "RichTable":
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=self.title, title_justify="left", caption_justify="left")
        table.caption = (self.note or None) if self.rows else "None."
        for index, column in enumerate(self.columns):
            table.add_column(Text(column), justify="right" if self._is_number(index) else "left", overflow="fold")
        for row in self.rows:
            # As Text, because user data may contain rich markup.
            table.add_row(*(Text(format_cell(cell)) for cell in row))
        return table

    def _is_number(self, column: int) -> bool:
        return all(isinstance(row[column], int | float | None) for row in self.rows)


@dataclass(frozen=True)
class Finding:
    """A key and value for the JSON report, and the tables that display it."""

    key: str
    value: Any
    tables: tuple[Table, ...]


def format_cell(cell: Cell) -> str:
    """Format a cell on one line: four decimals, thousands separators, long texts truncated."""
    match cell:
        case None:
            return ""
        case float():
            return f"{cell:.4f}"
        case int():
            return f"{cell:,}"
    line = " ".join(cell.split())
    return line if len(line) <= _MAX_CELL_LENGTH else f"{line[: _MAX_CELL_LENGTH - 1]}…"


def example_fields(example: Example) -> dict[str, Any]:
    """The id and the texts of an example, as plain values."""
    values = {"id": example.id, "text": example.text}
    return values if example.text_b is None else {**values, "text_b": example.text_b}


def example_line(example: Example) -> str:
    """The text of an example, or both texts of a pair, on one line."""
    return example.text if example.text_b is None else f"{example.text} ⏐ {example.text_b}"


def _escape(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
