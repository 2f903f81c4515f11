"""Rows of tables: CSV, TSV, JSON, JSON lines, Parquet and Excel files, lines of text, standard input, and lists."""

import csv
import difflib
import itertools
import json
import math
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightbert.data.text_files import (
    COMPRESSIONS,
    MAX_DOCUMENT,
    MAX_LINE_BYTES,
    BadRowHandler,
    BadRows,
    RowFile,
    Undecodable,
    as_utf8,
    bounded_lines,
    byte_lines,
    check_encoding,
    decoding_problem,
    read_decompressed,
)
from lightbert.errors import InputError, listed, required, unknown

Row = tuple[int, dict[str, Any]]
"""The number of a row, and its values by column. Lines, rows of sheets, and records are counted from 1."""
Cells = tuple[int, list[str] | str]
"""The number of a row, and its cells or what is wrong with it."""

FORMATS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx")
TEXT_FORMAT = ".txt"
WITH_HEADER = (".csv", ".tsv", ".parquet", ".xlsx")
"""The formats whose columns are the same in all rows."""
_UNITS = {".parquet": "row", ".xlsx": "row", ".json": "record"}

# As many as spreadsheets have. Each cell of a row costs time, so that tables with more of them took minutes.
MAX_COLUMNS = 16_384
# The default limit of the csv module is 128 Ki characters, which long documents exceed.
_MAX_FIELD_CHARACTERS = 1 << 24
# Far below the limit of Python's recursion, which functions that take records apart must not reach.
_MAX_LEVELS = 100
_QUOTED = re.compile(r'"(?:[^"]|"")*"')


@dataclass(frozen=True)
class TableOptions:
    """How tables are read.

    separator: of the fields of .csv files. encoding: of all files but Parquet and Excel.
    header: whether the first row has the names of the columns, or they are called 0, 1, 2, ….
    """

    separator: str = ","
    encoding: str = "utf-8"
    header: str = "first"
    bad_rows: BadRows = "error"
    undecodable: Undecodable = "error"

    def __post_init__(self) -> None:
        check_separator(self.separator)
        check_encoding(self.encoding)
        if self.header not in ("first", "none"):
            raise unknown("value of data.header", self.header, ("first", "none"))


def check_separator(separator: str) -> None:
    """Check the field separator of a .csv file."""
    if len(separator) != 1 or separator in '"\r\n':
        raise InputError(f"data.separator must be one character and not a quote or line ending, got {separator!r}")


def table_format(path: str | Path) -> str:
    """Return the suffix that determines the format of a file, in lowercase and without a compression suffix."""
    path = Path(path)
    name = Path(path.stem) if path.suffix.lower() in COMPRESSIONS else path
    return name.suffix.lower()


class RecordList(BadRowHandler):
    """Records in memory, such as those of the command line."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        super().__init__("the command line", unit="text")
        self._records = records

    def __iter__(self) -> Iterator[Row]:
        return enumerate(self._records, start=1)


class Table(RowFile):
    """The rows of one file, each a number and a dictionary. All but Parquet and Excel may be compressed (.gz, .zst, …).

    needed: keys and column names, such as {"data.text": "body"}; every row must have a value in each of these columns,
        and errors name both. If given, only these and the `optional` columns of a Parquet file are read.
    lines: whether a .txt file is a table, too: of JSON lines if the first line is a JSON object, else of texts.
    """

    is_corpus = False
    """Whether the table is one of many of a corpus: it may be empty, and unpaired surrogates are no problem."""
    position = 0
    """The number of bytes of the file on disk that are read so far."""

    def __init__(
        self,
        path: str | Path,
        needed: Mapping[str, str] | None = None,
        options: TableOptions = TableOptions(),  # noqa: B008
        *,
        optional: Sequence[str] = (),
        lines: bool = False,
    ) -> None:
        self.format = table_format(path)
        if Path(path).is_dir():
            raise InputError(f"'{path}' is a folder; give the path of a file in it")
        formats = (*FORMATS, TEXT_FORMAT) if lines else FORMATS
        if self.format not in formats:
            raise InputError(f"'{path}' must end in one of {', '.join(formats)}")
        super().__init__(path, options.bad_rows, _UNITS.get(self.format, "line"))
        self._needed = dict(needed or {})
        self._optional = set(optional)
        self._options = options

    def columns(self) -> list[str]:
        """Read the column names; those of a JSON file are the keys of its first valid record."""
        if self.format == ".parquet":
            return list(self.types())
        if self.format not in WITH_HEADER:
            # Bad rows are reported when the rows are read.
            skipping = Table(self.path, options=TableOptions(encoding=self._options.encoding, bad_rows="skip"))
            return list(next(skipping._rows(), (0, {}))[1])
        for _, cells in self._cells():
            return self._names(cells)
        raise self._no_header()

    def check_columns(self) -> list[str]:
        """Read the column names, and check that the needed ones are among them."""
        return self._check(self.columns())

    def _check(self, columns: list[str]) -> list[str]:
        for column in self._needed.values():
            if column not in columns:
                raise InputError(f"{self.name} {self._describe_missing(column, columns)}")
        return columns

    def types(self) -> dict[str, Any]:
        """Read the Arrow types of the columns of a Parquet file; other files have none."""
        if self.format != ".parquet":
            return {}
        arrow, parquet = _pyarrow(self.path)
        try:
            schema = parquet.read_schema(self.path)
            names = list(schema.names)
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise _damaged(self.path, "Parquet", error) from error
        self._check_count(len(names))
        return dict(zip(names, schema.types, strict=True))

    def __iter__(self) -> Iterator[Row]:
        used = 0
        for number, values in self._rows():
            missing = [column for column in self._needed.values() if values.get(column) is None]
            if missing:
                self.reject(number, self._describe_missing(missing[0], list(values)))
            else:
                used += 1
                yield number, values
        if not self.is_corpus and self.format != TEXT_FORMAT:
            self.require_some(used)

    def _rows(self) -> Iterator[Row]:
        match self.format:
            case ".parquet":
                return self._parquet_rows()
            case ".json":
                return self._json_records()
            case ".jsonl" | ".ndjson":
                return self._json_rows()
            case ".txt":
                return self._text_rows()
        return self._cell_rows()

    def _lines(self) -> Iterator[str | None]:
        """Yield each line with its line ending, or None if it is too long; `decoding_problem` finds bad bytes."""
        errors = "replace" if self._options.undecodable == "replace" else "surrogateescape"
        for line, position in self._bytes():
            self.position = position
            yield None if line is None else line.decode("utf-8", errors)

    def _bytes(self) -> Iterator[tuple[bytes | None, int]]:
        return byte_lines(self.path, self._options.encoding)

    def _readable_lines(self) -> Iterator[tuple[int, str]]:
        """Yield lines that aren't blank with their numbers; reject those that are too long or can't be decoded."""
        for number, line in enumerate(self._lines(), start=1):
            if line is None:
                self.reject(number, f"has more than {MAX_LINE_BYTES >> 20} MiB")
            elif problem := decoding_problem(line):
                self.reject(number, problem)
            elif line.strip():
                yield number, line

    def _json_rows(self) -> Iterator[Row]:
        for number, line in self._readable_lines():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                self.reject(number, "is not JSON")
                continue
            if problem := self._record_problem(record, line):
                self.reject(number, problem)
            else:
                yield number, record

    def _record_problem(self, record: Any, text: str) -> str:
        """What is wrong with a record that was read from a JSON text, or an empty string."""
        problem = record_problem(record, text) if isinstance(record, dict) else "is not a JSON object"
        # Only an escape sequence such as \ud83d can still contain an unpaired surrogate.
        if not problem and "\\ud" in text.lower() and not self.is_corpus:
            return decoding_problem(json.dumps(record, ensure_ascii=False))
        return problem

    def _text_rows(self) -> Iterator[Row]:
        """Rows of texts, or JSON lines: a line among texts that is an object is a record, other JSON lines are bad."""
        objects_only: bool | None = None
        for number, line in self._readable_lines():
            record = _json_object(line)
            if objects_only is None:
                objects_only = record is not None
            if record is None and objects_only:
                self.reject(number, "must be a JSON object, like the first line")
            elif record is None:
                yield number, {"text": line.rstrip("\r\n")}
            elif problem := self._record_problem(record, line):
                self.reject(number, problem)
            else:
                yield number, record

    def _json_records(self) -> Iterator[Row]:
        """Rows of a list of objects, of columns as pandas writes them, or of JSON lines."""
        content = read_decompressed(self.path, self._options.encoding).decode("utf-8-sig", "surrogateescape")
        if problem := decoding_problem(content):
            raise InputError(f"{self.name} {problem}; set data.encoding, usually latin-1")
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            if content.lstrip().startswith("{"):
                self._unit = "line"
                yield from self._json_rows()
                return
            raise InputError(f"{self.name} is not JSON ({error}); give a list of objects, one per row") from None
        records = _records(document)
        if records is None:
            raise InputError(f"{self.name} must contain a list of objects, one per row; change it, or save it as CSV")
        for number, record in enumerate(records, start=1):
            if problem := self._record_problem(record, content):
                self.reject(number, problem)
            else:
                yield number, record

    def _parquet_rows(self) -> Iterator[Row]:
        columns = self.check_columns()
        wanted = self._optional.union(self._needed.values()) if self._needed else set(columns)
        arrow, parquet = _pyarrow(self.path)
        size, number = self.path.stat().st_size, 0
        try:
            with parquet.ParquetFile(self.path) as file:
                read = [column for column in columns if column in wanted]
                for batch in file.iter_batches(batch_size=1024, columns=read):
                    for record in _arrow_records(batch):
                        number += 1
                        self.position = size * number // file.metadata.num_rows
                        if record is None:
                            self.reject(number, "has text that is not UTF-8")
                        else:
                            yield number, record
        except (arrow.ArrowException, OSError) as error:
            raise _damaged(self.path, "Parquet", error) from error

    def _cells(self) -> Iterator[Cells]:
        if self.format == ".xlsx":
            return _excel_cells(self.path)
        lines = (self._short(number, line) for number, line in enumerate(self._lines(), start=1))
        return _tab_cells(lines) if self.format == ".tsv" else _quoted_cells(self.name, lines, self._options.separator)

    def _short(self, number: int, line: str | None) -> str:
        if line is None:
            raise InputError(f"line {number} of {self.name} has more than {MAX_LINE_BYTES >> 20} MiB; check the file")
        return line

    def _cell_rows(self) -> Iterator[Row]:
        """Rows of a table with a header; empty lines are skipped."""
        header: list[str] = []
        for number, cells in self._cells():
            if not header:
                header = self._check(self._names(cells))
                if self._options.header == "first":
                    continue
            if isinstance(cells, str):
                self.reject(number, cells)
            elif problem := decoding_problem("".join(cells)):
                self.reject(number, problem)
            elif len(cells) != len(header):
                plural = "" if len(cells) == 1 else "s"
                expected = "the header" if self._options.header == "first" else "the first row"
                self.reject(number, f"has {len(cells)} field{plural}, but {expected} has {len(header)}")
            else:
                yield number, dict(zip(header, cells, strict=True))
        if not header and not self.is_corpus:
            raise self._no_header()

    def _no_header(self) -> InputError:
        return InputError(f"{self.name} is empty; its first line must contain the column names")

    def _names(self, cells: list[str] | str) -> list[str]:
        """The column names by the first row; an error if they are unreadable, not distinct or too many."""
        no_header = self._options.header == "none"
        problem = cells if isinstance(cells, str) else "" if no_header else decoding_problem("".join(cells))
        if isinstance(cells, str) or problem:
            raise InputError(
                f"the header of {self.name} {problem}; set data.encoding, or save the file as CSV in UTF-8"
            )
        self._check_count(len(cells))
        if no_header:
            return [str(index) for index in range(len(cells))]
        # "text, label" is a common way to write a header.
        names = [name.strip() for name in cells]
        duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
        if duplicates:
            raise InputError(
                f"the header of {self.name} has the column {duplicates[0]!r} twice; rename one of them, or set "
                "data.header=none if it is a row"
            )
        return names

    def _check_count(self, columns: int) -> None:
        if columns > MAX_COLUMNS:
            raise InputError(
                f"{self.name} must have at most {MAX_COLUMNS:,} columns, has {columns:,}; keep the columns that are "
                "used"
            )

    def _describe_missing(self, column: str, columns: list[str]) -> str:
        if column in columns:
            return f"has no value in column {column!r}"
        key = next(key for key, value in self._needed.items() if value == column)
        nearest = difflib.get_close_matches(column, columns, n=1)
        remedy = f"did you mean {nearest[0]!r}? Set {key}={nearest[0]}" if nearest else f"set {key}=COLUMN"
        if self.format == ".csv" and len(columns) == 1 and (other := _other_separator(columns[0])):
            remedy = f"if its fields are separated by {other!r}, set data.separator={other!r}"
        elif not nearest and any(" " in name.strip() for name in columns) and self._options.header == "first":
            remedy += ", or data.header=none if the first line is a row"
        return f"has no column {column!r}, only {listed(columns) or 'none'}; {remedy}"


class StandardInput(Table):
    """Lines of standard input, as of a .txt file, or CSV if the first line has one of `columns` among others."""

    def __init__(self, columns: Collection[str], options: TableOptions = TableOptions()) -> None:  # noqa: B008
        BadRowHandler.__init__(self, "standard input", options.bad_rows)
        self.format = TEXT_FORMAT
        self._needed, self._optional, self._options = {}, set(), options
        self._columns = columns
        self._stream: Iterator[bytes | None] = iter(())

    def _bytes(self) -> Iterator[tuple[bytes | None, int]]:
        return ((line, 0) for line in self._stream)

    def _rows(self) -> Iterator[Row]:
        lines = bounded_lines(as_utf8(sys.stdin.buffer, self.name, self._options.encoding), self.name)
        first = next(lines, None)
        self._stream = itertools.chain([] if first is None else [first], lines)
        cells = [
            cell.strip().strip('"') for cell in (first or b"").decode("utf-8", "replace").split(self._options.separator)
        ]
        names = cells if self._options.header == "first" else map(str, range(len(cells)))
        is_csv = len(cells) > 1 and not set(self._columns).isdisjoint(names)
        return self._cell_rows() if is_csv else self._text_rows()


def _tab_cells(lines: Iterable[str]) -> Iterator[Cells]:
    """The cells of a .tsv file as a spreadsheet writes it; empty lines are skipped."""
    all_quoted = False
    for number, line in enumerate(lines, start=1):
        if content := line.rstrip("\r\n"):
            cells = content.split("\t")
            # Excel quotes cells with quotes, and some programs all cells, the header among them.
            all_quoted = all_quoted if number > 1 else all(_QUOTED.fullmatch(cell) for cell in cells)
            yield number, [unquoted(cell, all_quoted=all_quoted) for cell in cells]


def unquoted(cell: str, *, all_quoted: bool) -> str:
    """A cell of a .tsv file without its quotes, if they are those of a spreadsheet."""
    if not (cell.startswith('"') and (all_quoted or '""' in cell) and _QUOTED.fullmatch(cell)):
        return cell
    return cell[1:-1].replace('""', '"')


def _quoted_cells(name: str, lines: Iterable[str], separator: str) -> Iterator[Cells]:
    """The cells of a .csv file, with quotes as in RFC 4180; empty lines are skipped."""
    # The limit is global to the process, so it is only ever raised.
    csv.field_size_limit(max(_MAX_FIELD_CHARACTERS, csv.field_size_limit()))
    reader = csv.reader(lines, delimiter=separator, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # Not skipped as a bad row, because everything after the quote would be lost.
            if "unexpected end of data" in str(error):
                raise InputError(f"line {number} of {name} has a quote that is never closed; close it") from None
            if "field larger than" in str(error):
                raise InputError(
                    f"line {number} of {name} has a cell of more than {_MAX_FIELD_CHARACTERS >> 20} Mi characters "
                    "or a quote that is never closed; shorten the cell or close the quote"
                ) from None
            yield number, f"is not CSV ({str(error).split(' - ')[0]})"
            continue
        if cells:
            yield number, cells


def _excel_cells(path: Path) -> Iterator[Cells]:
    """The cells of the first sheet of an Excel file, as Excel saves them as CSV; empty rows are skipped."""
    with required(f"'{path}' requires openpyxl", "lightbert[data]"):
        from openpyxl import load_workbook
    width = 0
    # A damaged file raises almost anything.
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MAX_DOCUMENT:
            raise InputError(f"'{path}' must have at most {MAX_DOCUMENT:,} bytes when decompressed; save it as CSV")
        book = load_workbook(path, read_only=True, data_only=True)
        try:
            for number, values in enumerate(book.worksheets[0].iter_rows(values_only=True), start=1):
                cells = list(map(_cell_text, values))
                while cells and not cells[-1] and len(cells) > width:
                    cells.pop()
                width = width or len(cells)
                if any(cells):
                    yield number, cells + [""] * (width - len(cells))
        finally:
            book.close()
    except InputError:
        raise
    except Exception as error:
        raise _damaged(path, "Excel", error) from error


def _cell_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return "" if value is None else str(value)


def _arrow_records(batch: Any) -> list[dict[str, Any] | None]:
    """Convert an Arrow batch to rows; a row that is not UTF-8 is None."""
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError:
        if len(batch) == 1:
            return [None]
        return [record for index in range(len(batch)) for record in _arrow_records(batch.slice(index, 1))]


def _pyarrow(path: Path) -> tuple[Any, Any]:
    with required(f"'{path}' requires pyarrow", "lightbert[data]"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet


def _damaged(path: Path, kind: str, error: Exception) -> InputError:
    article = "an" if kind == "Excel" else "a"
    return InputError(f"'{path}' is damaged or not {article} {kind} file ({error}); copy it again")


def _records(document: Any) -> list[Any] | None:
    """The rows of a JSON document: a list of objects, an object of columns, or one row; None for anything else."""
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        return None
    columns = list(document.values())
    # pandas writes a column as an object, whose keys are the labels of the rows.
    labels = [list(column) if isinstance(column, dict) else None for column in columns]
    if columns and labels[0] is not None and all(label == labels[0] for label in labels):
        columns = [list(column.values()) for column in columns]
    elif not columns or not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        return [document]
    return [dict(zip(document, values, strict=True)) for values in zip(*columns, strict=True)]


def _json_object(text: str) -> dict[str, Any] | None:
    """Parse a line; None if it is not a JSON object."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def record_problem(record: dict[str, Any], text: str) -> str:
    """Return what is wrong with a JSON record that was read from a text, or an empty string."""
    if len(record) > MAX_COLUMNS:
        return f"has {len(record):,} fields, more than {MAX_COLUMNS:,}"
    level: list[Any] = [record]
    for _ in range(_MAX_LEVELS):
        level = [inner for value in level for inner in _items(value)]
        if any(isinstance(value, float) and math.isinf(value) for value in level) and "Infinity" not in text:
            return "has a number that is too large, such as 1e400"
        if not level:
            break
    else:
        return f"is nested more than {_MAX_LEVELS} levels deep"
    return ""


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _other_separator(header: str) -> str:
    """The separator that a header of one column seems to have; "" if none."""
    return next((mark for mark in ";\t|," if mark in header), "")
