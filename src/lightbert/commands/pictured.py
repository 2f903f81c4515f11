"""What an analysis found: numbers, a table of them, and a picture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Pictured:
    """The report of an analysis; what `details` holds is for machines only."""

    picture: Path
    columns: tuple[str, ...]
    rows: Sequence[tuple[str | float | None, ...]]
    metrics: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        return {"picture": str(self.picture), "metrics": self.metrics, **self.details}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        table = Table(*self.columns)
        for row in self.rows:
            table.add_row(*map(_shown, row))
        return Group(table, f"picture: {self.picture}")


def _shown(cell: str | float | None) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:.4g}"
