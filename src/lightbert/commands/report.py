"""Reports of commands, printed as text or JSON."""

import json as json_format
import sys
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
"""The type of the parameter `json` of every command."""

# For files and pipes, where rich assumes 80 columns and would wrap tables.
_PIPE_WIDTH = 160


class Report(Protocol):
    """The result of a command: a dataclass with these two methods."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""

    def __rich__(self) -> "RenderableType":
        """Return the text to print: a string, a `rich.table.Table`, or a `rich.console.Group`."""


def show(report: Report, *, json: bool) -> None:
    """Print a report on standard output."""
    if json:
        print(json_format.dumps(report.to_json(), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(report)
