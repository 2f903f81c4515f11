"""Tables in CSV, TSV, JSONL and Parquet files, read row by row in constant memory."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightbert.data.text.row_file import BadRows, RowFile
from lightbert.data.text.table_rows import (
    Row,
    check_separator,
    delimited_columns,
    delimited_rows,
    json_rows,
    parquet_rows,
    parquet_types,
)
from lightbert.data.text.text_files import COMPRESSIONS
from lightbert.errors import InputError, listed

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
        columns = self.columns()
        for column in self._needed.values():
            if column not in columns:
                raise InputError(f"'{self.path}' {self._describe_missing(column, columns)}")
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
    return next((each for each in ";\t|," if each in header), "")


def table_format(path: str | Path) -> str:
    """Return the suffix that determines the format of a file, in lowercase and without a compression suffix."""
    path = Path(path)
    name = Path(path.stem) if path.suffix.lower() in COMPRESSIONS else path
    return name.suffix.lower()
