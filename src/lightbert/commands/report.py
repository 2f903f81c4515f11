"""Reports of commands, printed as text or JSON."""

import json as json_format
import os
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
    """Print a report on standard output; the work is done, so a reader that has left is not an error."""
    text = json_format.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n" if json else _text(report)
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        # What is buffered would raise again at the exit of the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _text(report: Report) -> str:
    from rich.console import Console

    # Reports contain paths, in which square brackets are not markup.
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(report)
    return capture.get()
