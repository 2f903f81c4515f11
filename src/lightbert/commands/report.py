"""The reports of commands: content for JSON, and lines and tables of text."""

import json as json_format
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from lightbert.config import without_nan

if TYPE_CHECKING:
    from rich.console import RenderableType

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
"""The type of the parameter `json` of every command."""

# For files and pipes, where rich assumes 80 columns and would wrap tables.
_PIPE_WIDTH = 160


class Printable(Protocol):
    """What `show` prints: a `Report`, or another class with these two methods."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""

    def __rich__(self) -> "RenderableType":
        """Return the text to print."""


@dataclass(frozen=True)
class Table:
    """A table of text: the first `left` columns are aligned to the left, the others to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""
    left: int = 1
    bold: int = -1
    """The number of the row that is printed in bold."""
    frame: bool = True

    def __rich__(self) -> "RenderableType":
        from rich import box, table

        shown = table.Table(
            title=self.title or None,
            caption=self.caption or None,
            title_justify="left",
            caption_justify="left",
            show_header=any(self.columns),
            box=box.HEAVY_HEAD if self.frame else None,
        )
        for number, column in enumerate(self.columns):
            shown.add_column(column, justify="left" if number < self.left else "right", no_wrap=number == 0)
        for number, row in enumerate(self.rows):
            shown.add_row(*row, style="bold" if number == self.bold else "")
        return shown


@dataclass(frozen=True)
class Report:
    """The result of a command.

    content: what --json prints.
    parts: lines, tables and other reports, which are printed one below the other.
    """

    content: Mapping[str, Any]
    parts: Sequence["str | RenderableType"] = ()

    def __getattr__(self, name: str) -> Any:
        """Return a value of the content: ``report.train.tokens`` is ``report.to_json()["train"]["tokens"]``."""
        if name == "content" or name.startswith("_") or name not in self.content:
            raise AttributeError(f"the report has no attribute {name!r}; it has {', '.join(self.content)}")
        value = self.content[name]
        return SimpleNamespace(**value) if isinstance(value, Mapping) else value

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics by name, if the command measures any."""
        return dict(self.content.get("metrics", {}))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return dict(self.content)

    def __rich__(self) -> "RenderableType":
        if all(isinstance(part, str) for part in self.parts):
            return "\n".join(map(str, self.parts))
        from rich.console import Group

        return Group(*self.parts)


def show(report: Printable, *, json: bool) -> None:
    """Print a report on standard output; the work is done, so a reader that has left is not an error."""
    text = _json(report) if json else _text(report)
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        # What is buffered would raise again at the exit of the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _json(report: Printable) -> str:
    return json_format.dumps(without_nan(report.to_json()), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _text(report: Printable) -> str:
    terminal, content = sys.stdout.isatty(), report.__rich__()
    if isinstance(content, str) and not terminal:
        # Without rich, whose import takes a noticeable part of a short command.
        return f"{content}\n"
    from rich.console import Console

    # Reports contain paths, in which square brackets are not markup. Highlighting takes time quadratic in the length of
    # a word, and only a terminal shows it.
    console = Console(width=None if terminal else _PIPE_WIDTH, markup=False, emoji=False, highlight=terminal)
    with console.capture() as capture:
        # A terminal wraps plain lines itself, so that they can be copied.
        console.print(content, soft_wrap=isinstance(content, str))
    return capture.get()
