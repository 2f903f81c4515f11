"""Reports of commands, printed as text or JSON."""

import json as json_format
import math
import os
import sys
from collections.abc import Mapping
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
    text = _json(report) if json else _text(report)
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        # What is buffered would raise again at the exit of the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _json(report: Report) -> str:
    return json_format.dumps(_without_nan(report.to_json()), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _without_nan(value: Any) -> Any:
    """Replace numbers that are not finite by None, because JSON has none."""
    if isinstance(value, Mapping):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(report: Report) -> str:
    terminal, content = sys.stdout.isatty(), report.__rich__()
    if isinstance(content, str) and not terminal:
        # Without rich, whose import takes a noticeable part of a short command.
        return f"{content}\n"
    from rich.console import Console

    # Reports contain paths, in which square brackets are not markup. Highlighting takes time quadratic in the length of
    # a word, and only a terminal shows it.
    console = Console(width=None if terminal else _PIPE_WIDTH, markup=False, emoji=False, highlight=terminal)
    with console.capture() as capture:
        console.print(content)
    return capture.get()
