"""Files that are read row by row, with an error or a skip for each bad row."""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from lightbert.data.text.text_files import BOM, byte_lines
from lightbert.errors import InputError

BadRows = Literal["error", "skip"]

# Far below the limit of Python's recursion, which functions that take records apart must not reach.
_MAX_LEVELS = 100
# As many as spreadsheets have. Each cell of a row costs time, so that tables with more of them took minutes.
MAX_COLUMNS = 16_384
_SURROGATE = re.compile("[\ud800-\udfff]")


class BadRowError(InputError):
    """A bad row, raised unless bad rows are skipped."""

    def __init__(self, sentence: str) -> None:
        super().__init__(f"{sentence}; fix it, or skip such rows with data.bad_rows=skip")


class BadRowHandler:
    """Raises an error for the first bad row, or skips and counts bad rows.

    As a context manager around the reading, it prints the number of skipped rows to stderr on exit.
    """

    def __init__(self, name: str, bad_rows: BadRows = "error", unit: str = "line") -> None:
        self.name = name
        self.skipped = 0
        self._bad_rows = bad_rows
        self._unit = unit
        self._first = ""

    def reject(self, number: int, reason: str) -> None:
        """Report a bad row; `reason` completes a sentence that starts with "line 7 of 'my.csv'"."""
        sentence = f"{self._unit} {number} of {self.name} {reason}"
        if self._bad_rows == "error":
            raise BadRowError(sentence)
        self.skipped += 1
        self._first = self._first or sentence

    def require_some(self, used: int) -> None:
        """Raise an error if the file has no usable row."""
        if not used and self.skipped:
            raise InputError(f"no row of {self.name} can be used ({self.skipped} are bad): {self._first}")
        if not used:
            raise InputError(f"{self.name} is empty; it must contain at least one row")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.skipped and error is None:
            rows = "1 bad row" if self.skipped == 1 else f"{self.skipped} bad rows"
            print(f"skipped {rows} of {self.name}; the first: {self._first}", file=sys.stderr)


class RowFile(BadRowHandler):
    """A file that may contain bad rows."""

    def __init__(self, path: str | Path, bad_rows: BadRows = "error", unit: str = "line") -> None:
        super().__init__(f"'{path}'", bad_rows, unit)
        self.path = Path(path)
        if self.path.is_dir():
            raise InputError(f"'{path}' is a folder; give the path of a file in it")
        if not self.path.is_file():
            problem = (
                "must be a regular file; save the data first" if self.path.exists() else "not found; check the path"
            )
            raise InputError(f"'{path}' {problem}")


def text_lines(path: Path) -> Iterator[str]:
    """Yield each line with its line ending; `decoding_problem` detects lines that are not UTF-8."""
    for number, (line, _) in enumerate(byte_lines(path)):
        yield (line if number else line.removeprefix(BOM)).decode("utf-8", "surrogateescape")


def decoding_problem(text: str) -> str:
    """Return what is wrong with the encoding of a line from `text_lines`, or an empty string."""
    found = _SURROGATE.search(text)
    if found is None:
        return ""
    code = ord(found[0])
    return (
        f"is not UTF-8 (byte 0x{code - 0xDC00:02x})" if 0xDC80 <= code <= 0xDCFF else "contains an unpaired surrogate"
    )


def check_decoded(text: str) -> None:
    """Raise an error for a text that no tokenizer can read, such as an argument of a command that is not UTF-8."""
    if problem := decoding_problem(text):
        shown = repr(text) if len(text) <= 60 else f"{text[:57]!r}…"
        raise InputError(f"the text {shown} {problem}; correct its encoding")


def record_problem(record: dict[str, Any], line: str) -> str:
    """Return what is wrong with a JSON record that was read from a line, or an empty string."""
    if len(record) > MAX_COLUMNS:
        return f"has {len(record):,} fields, more than {MAX_COLUMNS:,}"
    level: list[Any] = [record]
    for _ in range(_MAX_LEVELS):
        level = [each for value in level for each in _items(value)]
        if not level:
            break
    else:
        return f"is nested more than {_MAX_LEVELS} levels deep"
    # Only an escape sequence such as \ud83d can still contain an unpaired surrogate.
    return decoding_problem(json.dumps(record, ensure_ascii=False)) if "\\ud" in line.lower() else ""


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
