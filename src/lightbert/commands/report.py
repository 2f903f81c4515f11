"""How a command's result reaches a person or a machine."""

import json as json_format
import sys
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, all else on stderr.")]
"""The type of every command's parameter `json`."""

# Tables that go into a file or a pipe should not be folded to the 80 columns that rich assumes there.
_PIPE_WIDTH = 160


class Report(Protocol):
    """What a command found out. Commands return dataclasses with these two methods."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""

    def __rich__(self) -> "RenderableType":
        """Return what a person reads: a text, a `rich.table.Table`, a `rich.console.Group` of them."""


def show(report: Report, *, json: bool) -> None:
    """Print a report on standard output."""
    if json:
        print(json_format.dumps(report.to_json(), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(report)
