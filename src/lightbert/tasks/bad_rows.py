"""What happens to the rows of a file that cannot be read."""

import sys
from pathlib import Path
from types import TracebackType

from lightbert.errors import InputError, unknown

CHOICES = ("error", "skip")

_LINES_NAMED = 5


class BadRows:
    """By default the first bad row of a file ends the reading; with "skip" they are left out and counted.

    A context, so that skipped rows are told of on stderr when the file has been read.
    """

    def __init__(self, path: Path, choice: str = "error") -> None:
        if choice not in CHOICES:
            raise unknown("choice for bad_rows", choice, CHOICES)
        self.path = path
        self.choice = choice
        self.lines: list[int] = []
        """The lines that were skipped, counted from 1."""

    def meet(self, line: int, reason: str) -> None:
        """A row that cannot be used: raise, or make a note of it."""
        if self.choice == "error":
            raise InputError(f"'{self.path}', line {line}: {reason}; correct it, or leave out such rows: bad_rows=skip")
        self.lines.append(line)

    def __enter__(self) -> "BadRows":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self.lines:
            print(self.sentence(), file=sys.stderr)

    def sentence(self) -> str:
        """How many rows were skipped, and where the first of them are."""
        named = ", ".join(str(line) for line in self.lines[:_LINES_NAMED])
        more = ", …" if len(self.lines) > _LINES_NAMED else ""
        return f"'{self.path}': skipped bad rows: {len(self.lines):,} (line {named}{more})"
