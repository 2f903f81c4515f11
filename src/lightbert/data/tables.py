"""Streams the rows of CSV, TSV, JSONL and Parquet files and rejects malformed rows."""

import csv
import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightbert.data.text_files import (
    COMPRESSIONS,
    MAX_COLUMNS,
    BadRows,
    RowFile,
    decoding_problem,
    record_problem,
    text_lines,
)
from lightbert.errors import InputError, listed, required

Row = tuple[int, dict[str, Any]]
"""The 1-based number of a row's first line (in Parquet, of the row), and its values by column."""

# The default limit of the csv module is 128 Ki characters, which long documents exceed.
_MAX_FIELD_CHARACTERS = 1 << 24


def delimited_rows(file: RowFile, separator: str, *, quotes: bool) -> Iterator[Row]:
    """Yield the rows of a .csv file (with quotes as in RFC 4180) or a .tsv file (as a spreadsheet writes it).

    The first line contains the column names. Empty lines are skipped.
    """
    header: list[str] = []
    for number, fields in split_rows(file.path, text_lines(file.path), separator, quotes=quotes):
        if not header:
            header = check_header(file.path, fields)
        elif isinstance(fields, str):
            file.reject(number, fields)
        elif problem := decoding_problem("".join(fields)):
            file.reject(number, problem)
        elif len(fields) != len(header):
            plural = "" if len(fields) == 1 else "s"
            file.reject(number, f"has {len(fields)} field{plural}, but the header has {len(header)}")
        else:
            yield number, dict(zip(header, fields, strict=True))


def delimited_columns(path: Path, separator: str, *, quotes: bool) -> list[str]:
    """Read the column names of a .csv or .tsv file."""
    for _, fields in split_rows(path, text_lines(path), separator, quotes=quotes):
        return check_header(path, fields)
    raise InputError(f"'{path}' is empty; its first line must contain the column names")


def json_rows(file: RowFile) -> Iterator[Row]:
    """Yield the rows of a .jsonl file: one JSON object per line. Empty lines are skipped."""
    for number, line in enumerate(text_lines(file.path), start=1):
        if not line.strip():
            continue
        if problem := decoding_problem(line):
            file.reject(number, problem)
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            file.reject(number, "is not JSON")
            continue
        problem = record_problem(record, line) if isinstance(record, dict) else "is not a JSON object"
        if problem:
            file.reject(number, problem)
        else:
            yield number, record


def parquet_rows(file: RowFile, columns: list[str]) -> Iterator[Row]:
    """Yield `columns` of each row of a .parquet file."""
    arrow, parquet = _pyarrow(file.path)
    number = 0
    try:
        with parquet.ParquetFile(file.path) as opened:
            for batch in opened.iter_batches(batch_size=1024, columns=columns):
                for record in _records(batch):
                    number += 1
                    if record is None:
                        file.reject(number, "is not UTF-8")
                    else:
                        yield number, record
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"'{file.path}' is damaged or not a Parquet file ({error}); copy it again") from error


def parquet_types(path: Path) -> dict[str, Any]:
    """Read the column names of a .parquet file, each with its type."""
    arrow, parquet = _pyarrow(path)
    try:
        schema = parquet.read_schema(path)
        names = list(schema.names)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' is damaged or not a Parquet file ({error}); copy it again") from error
    _check_count(path, len(names))
    return dict(zip(names, schema.types, strict=True))


def check_separator(separator: str) -> None:
    """Check the field separator of a .csv file."""
    if len(separator) != 1 or separator in '"\r\n':
        raise InputError(f"data.separator must be one character and not a quote or line ending, got {separator!r}")


def split_rows(
    path: Path, lines: Iterator[str], separator: str, *, quotes: bool
) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the number and the fields of each row, or a description of its problem. `path` is named in errors."""
    if quotes:
        yield from _quoted(path, lines, separator)
        return
    all_quoted = False
    for number, line in enumerate(lines, start=1):
        if content := line.rstrip("\r\n"):
            fields = content.split(separator)
            # Excel quotes cells with quotes, and some programs all cells, the header among them.
            all_quoted = all_quoted if number > 1 else all(_QUOTED.fullmatch(field) for field in fields)
            yield number, [_unquoted(field, all_quoted=all_quoted) for field in fields]


_QUOTED = re.compile(r'"(?:[^"]|"")*"')


def _unquoted(field: str, *, all_quoted: bool) -> str:
    """A cell of a .tsv file without its quotes, if they are those of a spreadsheet."""
    if not (field.startswith('"') and (all_quoted or '""' in field) and _QUOTED.fullmatch(field)):
        return field
    return field[1:-1].replace('""', '"')


def _quoted(path: Path, lines: Iterator[str], separator: str) -> Iterator[tuple[int, list[str] | str]]:
    # The limit is global to the process, so it is only ever raised.
    csv.field_size_limit(max(_MAX_FIELD_CHARACTERS, csv.field_size_limit()))
    reader = csv.reader(lines, delimiter=separator, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # Not skipped as a bad row, because everything after the quote would be lost.
            if "unexpected end of data" in str(error):
                raise InputError(f"line {number} of '{path}' has a quote that is never closed; close it") from None
            if "field larger than" in str(error):
                raise InputError(
                    f"line {number} of '{path}' has a cell of more than {_MAX_FIELD_CHARACTERS >> 20} Mi characters "
                    "or a quote that is never closed; shorten the cell or close the quote"
                ) from None
            yield number, f"is not CSV ({str(error).split(' - ')[0]})"
            continue
        if fields:
            yield number, fields


def check_header(path: Path, names: list[str] | str) -> list[str]:
    """Return the column names; raise an error if they are unreadable, not distinct or too many."""
    problem = names if isinstance(names, str) else decoding_problem("".join(names))
    if isinstance(names, str) or problem:
        raise InputError(f"the header of '{path}' {problem}; save the file as CSV in UTF-8")
    _check_count(path, len(names))
    # "text, label" is a common way to write a header.
    names = [name.strip() for name in names]
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        raise InputError(f"the header of '{path}' has the column {duplicates[0]!r} twice; rename one of them")
    return names


def _check_count(path: Path, columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise InputError(
            f"'{path}' must have at most {MAX_COLUMNS:,} columns, has {columns:,}; keep the columns that are used"
        )


def _records(batch: Any) -> list[dict[str, Any] | None]:
    """Convert an Arrow batch to rows; a row that is not UTF-8 is None."""
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError:
        if len(batch) == 1:
            return [None]
        return [record for index in range(len(batch)) for record in _records(batch.slice(index, 1))]


def _pyarrow(path: Path) -> tuple[Any, Any]:
    with required(f"'{path}' requires pyarrow", "lightbert[data]"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet


FORMATS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")


class Table(RowFile):
    """The rows of one file, each a line number and a dictionary. All but Parquet may be compressed (.gz, .zst, …).

    `needed` maps keys to column names, such as {"data.text": "body"}; every row must have a value in each of these
    columns, and errors name both. If it is given, only these and the `optional` columns of a Parquet file are read.
    `separator` applies to .csv files only.
    """

    def __init__(
        self,
        path: str | Path,
        needed: Mapping[str, str] | None = None,
        *,
        optional: Sequence[str] = (),
        separator: str = ",",
        bad_rows: BadRows = "error",
    ) -> None:
        self.format = table_format(path)
        if self.format not in FORMATS:
            raise InputError(f"'{path}' must have one of the suffixes {', '.join(FORMATS)}")
        super().__init__(path, bad_rows, "row" if self.format == ".parquet" else "line")
        check_separator(separator)
        self._needed = dict(needed or {})
        self._optional = set(optional)
        self._separator = separator if self.format == ".csv" else "\t"

    def columns(self) -> list[str]:
        """Read the column names; those of a JSONL file are the keys of its first valid line."""
        match self.format:
            case ".csv" | ".tsv":
                return delimited_columns(self.path, self._separator, quotes=self.format == ".csv")
            case ".parquet":
                return list(parquet_types(self.path))
        # Bad rows are reported when the rows are read.
        first = next(json_rows(RowFile(self.path, "skip")), (0, {}))
        return list(first[1])

    def check_columns(self) -> list[str]:
        """Read the column names, and check that the needed ones are among them."""
        columns = self.columns()
        for column in self._needed.values():
            if column not in columns:
                raise InputError(f"'{self.path}' {self._describe_missing(column, columns)}")
        return columns

    def types(self) -> dict[str, Any]:
        """Read the Arrow types of the columns of a Parquet file; other files have none."""
        return parquet_types(self.path) if self.format == ".parquet" else {}

    def __iter__(self) -> Iterator[Row]:
        used = 0
        for number, values in self._rows():
            missing = [column for column in self._needed.values() if values.get(column) is None]
            if missing:
                self.reject(number, self._describe_missing(missing[0], list(values)))
            else:
                used += 1
                yield number, values
        self.require_some(used)

    def _rows(self) -> Iterator[Row]:
        if self.format in (".jsonl", ".ndjson"):
            return json_rows(self)
        columns = self.check_columns()
        if self.format == ".parquet":
            wanted = self._optional.union(self._needed.values()) if self._needed else set(columns)
            return parquet_rows(self, [column for column in columns if column in wanted])
        return delimited_rows(self, self._separator, quotes=self.format == ".csv")

    def _describe_missing(self, column: str, columns: list[str]) -> str:
        if column in columns:
            return f"has no value in column {column!r}"
        key = next(key for key, value in self._needed.items() if value == column)
        nearest = difflib.get_close_matches(column, columns, n=1)
        remedy = f"did you mean {nearest[0]!r}? Set {key}={nearest[0]}" if nearest else f"set {key}=COLUMN"
        if self.format == ".csv" and len(columns) == 1 and (other := _other_separator(columns[0])):
            remedy = f"if its fields are separated by {other!r}, set data.separator={other!r}"
        return f"has no column {column!r}, only {listed(columns) or 'none'}; {remedy}"


def _other_separator(header: str) -> str:
    """The separator that a header of one column seems to have; "" if none."""
    return next((mark for mark in ";\t|," if mark in header), "")


def table_format(path: str | Path) -> str:
    """Return the suffix that determines the format of a file, in lowercase and without a compression suffix."""
    path = Path(path)
    name = Path(path.stem) if path.suffix.lower() in COMPRESSIONS else path
    return name.suffix.lower()
