"""The report of `lightbert analyse`: the written files, the tables and the metrics."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.analysis.report import Results


@dataclass(frozen=True)
class AnalysisReport:
    """The written files and the numbers of the analyses."""

    results: "Results"
    files: tuple[Path, ...]

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of all analyses by name."""
        found: dict[str, float] = self.results.to_json()["metrics"]
        return found

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"files": [str(file) for file in self.files], **self.results.to_json()}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        from lightbert.analysis.report import format_cell

        parts: list[Any] = []
        for each in (table for section in self.results.sections for table in section.tables):
            table = Table(*each.columns, title=each.title, title_justify="left")
            for row in each.rows:
                table.add_row(*map(format_cell, row))
            parts.append(table)
        notes = [note for section in self.results.sections for note in section.notes]
        left_out = [f"left out: {name}: {reason}" for name, reason in self.results.left_out.items()]
        return Group(*parts, *dict.fromkeys(notes), *left_out, *(f"wrote {file}" for file in self.files))
