"""What an evaluation found beside the metrics: plain values for a machine, tables for a person."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lightbert.tasks.example import Example

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Cell = str | int | float | None

_LONGEST_CELL = 240


@dataclass(frozen=True)
class Table:
    """Rows under a title, written as Markdown or drawn in a terminal."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    note: str = ""

    def to_markdown(self) -> str:
        """A heading, the note, and a pipe table, or a word that there is nothing."""
        if not self.rows:
            return f"## {self.title}\n\nNone."
        marks = ["---:" if self._is_number(column) else "---" for column in range(len(self.columns))]
        body = [[_escaped(shown(cell)) for cell in row] for row in self.rows]
        lines = [f"| {' | '.join(cells)} |" for cells in (map(_escaped, self.columns), marks, *body)]
        return "\n\n".join(part for part in (f"## {self.title}", self.note, "\n".join(lines)) if part)

    def __rich__(self) -> "RichTable":
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=self.title, title_justify="left", caption_justify="left")
        table.caption = (self.note or None) if self.rows else "None."
        for place, column in enumerate(self.columns):
            table.add_column(Text(column), justify="right" if self._is_number(place) else "left", overflow="fold")
        for row in self.rows:
            # Texts of a user may look like rich's markup.
            table.add_row(*(Text(shown(cell)) for cell in row))
        return table

    def _is_number(self, column: int) -> bool:
        return all(isinstance(row[column], int | float | None) for row in self.rows)


@dataclass(frozen=True)
class Finding:
    """One thing found out: its name and plain values in JSON, and the tables that show it."""

    key: str
    value: Any
    tables: tuple[Table, ...]


def shown(cell: Cell) -> str:
    """A cell as text on one line: four digits of a number, thousands set apart, long texts cut."""
    match cell:
        case None:
            return ""
        case float():
            return f"{cell:.4f}"
        case int():
            return f"{cell:,}"
    line = " ".join(cell.split())
    return line if len(line) <= _LONGEST_CELL else f"{line[: _LONGEST_CELL - 1]}…"


def example_fields(example: Example) -> dict[str, Any]:
    """Plain values: where the example comes from, and its texts."""
    values = {"id": example.id, "text": example.text}
    return values if example.text_b is None else {**values, "text_b": example.text_b}


def example_line(example: Example) -> str:
    """Both texts of a pair in one line."""
    return example.text if example.text_b is None else f"{example.text} ⏐ {example.text_b}"


def _escaped(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
