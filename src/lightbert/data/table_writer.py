"""Files of records, JSON lines, CSV and TSV, which `tables` reads back with the same values."""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from lightbert.data.tables import unquoted
from lightbert.errors import InputError
from lightbert.files import file_atomic

FORMATS = (".jsonl", ".ndjson", ".csv", ".tsv")

Write = Callable[[Mapping[str, Any]], None]


def check_path(path: Path) -> None:
    """Check that an output file has a known suffix and is not a folder; pipes and devices have any name."""
    if path.is_dir():
        raise InputError(f"'{path}' must be a file, but is a folder; choose another name")
    if path.suffix.lower() not in FORMATS and not _is_stream(path):
        raise InputError(f"the name of an output file must end in one of {', '.join(FORMATS)}, got '{path}'")


def _is_stream(path: Path) -> bool:
    """Whether JSON lines are written into a pipe or a device."""
    return path.exists() and not path.is_file()


def json_line(value: Any) -> str:
    """A value as one line of JSON; types that JSON lacks, such as dates, become strings."""
    return json.dumps(value, ensure_ascii=False, default=str)


@contextmanager
def record_file(path: Path, list_separator: str = ";") -> Iterator[Write]:
    """Yield a function that writes a record; the file appears when the body succeeds.

    In tables, objects become one column per field (`probabilities.good`), lists of names are joined by
    `list_separator`, and other lists are written as JSON. In a TSV file, tabs and line ends become spaces.
    The columns are those of all records, so records are kept in a temporary file until the last one is written.
    """
    check_path(path)
    with file_atomic(path, follow=True) as temporary:
        if path.suffix.lower() in (".jsonl", ".ndjson") or _is_stream(path):
            with temporary.open("w", encoding="utf-8") as file:
                yield lambda record: print(json_line(record), file=file)
            return
        with tempfile.TemporaryFile("w+", encoding="utf-8", dir=path.parent) as cells:
            columns: dict[str, None] = {}

            def write(record: Mapping[str, Any]) -> None:
                row = dict(_cells(record, list_separator))
                columns.update(dict.fromkeys(row))
                print(json_line(row), file=cells)

            yield write
            cells.seek(0)
            with temporary.open("w", encoding="utf-8", newline="") as file:
                _write_table(file, list(columns), cells, quotes=path.suffix.lower() == ".csv")


def _cells(record: Mapping[str, Any], list_separator: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the columns of a record with their values: strings, numbers or None."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _cells(value, list_separator, f"{prefix}{name}.")
        elif isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            yield f"{prefix}{name}", list_separator.join(value)
        elif isinstance(value, bool | list | tuple):
            yield f"{prefix}{name}", json_line(value)
        else:
            yield f"{prefix}{name}", value


def _write_table(file: IO[str], columns: list[str], rows: IO[str], *, quotes: bool) -> None:
    separator = "," if quotes else "\t"
    # A header of quoted names says that all cells are.
    all_quoted = all(len(name) > 1 and name[0] == name[-1] == '"' for name in columns)
    cell = _csv_cell if quotes else partial(_tsv_cell, all_quoted=all_quoted)

    def write(values: list[Any]) -> None:
        # An empty line would not be read as a row.
        print(separator.join(map(cell, values)) or '""', file=file)

    write(columns)
    for line in rows:
        row = json.loads(line)
        write(["" if row.get(name) is None else row[name] for name in columns])


def _csv_cell(value: Any) -> str:
    text = str(value)
    # Unlike in the csv module of some versions, a lone carriage return is quoted.
    return '"' + text.replace('"', '""') + '"' if re.search('[",\r\n]', text) else text


def _tsv_cell(value: Any, *, all_quoted: bool) -> str:
    text = re.sub(r"[\t\r\n]", " ", str(value))
    # Quotes that would be removed by a reader.
    return '"' + text.replace('"', '""') + '"' if unquoted(text, all_quoted=all_quoted) != text else text
