"""Files of predictions (JSON lines, CSV, TSV) and of vectors (.npy, .parquet), written incrementally."""

import csv
import json
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError, required, unknown
from lightbert.files import file_atomic, make_folder
from lightbert.tasks.predict.vectors import Floats

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
def prediction_file(path: Path, list_separator: str = ";") -> Iterator[Write]:
    """Yield a function that writes a record; the file appears when the body succeeds.

    In tables, objects become one column per field (`probabilities.good`), lists of names are joined by
    `list_separator`, and other lists are written as JSON. A TSV file has no quotes: tabs and line ends become spaces.
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
    write = csv.writer(file, lineterminator="\n").writerow if quotes else partial(_write_unquoted, file)
    write(columns)
    for line in rows:
        row = json.loads(line)
        write(["" if row.get(name) is None else row[name] for name in columns])


def _write_unquoted(file: IO[str], row: list[Any]) -> None:
    print("\t".join(re.sub(r"[\t\r\n]", " ", str(value)) for value in row), file=file)


_FORMATS = (".npy", ".parquet")

VECTOR = "vector"
"""The column of the vectors in a .parquet file."""


class VectorFile(ABC):
    """A file of vectors that grows chunk by chunk."""

    @abstractmethod
    def write(self, vectors: Floats, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append vectors [n, D] and, if the format has them, the n values of each column."""

    @abstractmethod
    def close(self) -> None:
        """Complete the file."""


VectorType = Literal["float32", "int8", "binary"]


@contextmanager
def vector_file(
    path: Path,
    width: int,
    columns: Sequence[str] = (),
    types: Mapping[str, Any] | None = None,
    dtype: VectorType = "float32",
) -> Iterator[VectorFile]:
    """Create a file of vectors; it appears under its name when the body succeeds.

    columns: further columns of a .parquet file. A .npy file contains vectors only. types: their types, if known.
    """
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise unknown("format of vectors", suffix, _FORMATS)
    make_folder(path.parent)
    with (
        file_atomic(path, follow=True) as temporary,
        temporary.open("wb") as file,
        closing(
            NpyFile(file, width, dtype)
            if suffix == ".npy"
            else ParquetFile(file, path, width, columns, types or {}, dtype)
        ) as writer,
    ):
        yield writer


def as_type(vectors: Floats, dtype: VectorType) -> NDArray[Any]:
    """Vectors [N, D] in another type.

    int8: each vector is scaled so that its largest value is 127, which changes its direction by rounding only.
    binary: the signs as uint8 [N, D / 8], 1 = positive, the first value in the highest bit (numpy.packbits).
    """
    if dtype == "float32":
        return vectors
    if dtype == "binary":
        return np.packbits(vectors > 0, axis=1)
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    return np.rint(vectors * (127 / np.where(largest > 0, largest, 1))).astype(np.int8)


class NpyFile(VectorFile):
    """An array [N, D] in NumPy's format; the header is rewritten once N is known."""

    def __init__(self, file: BinaryIO, width: int, dtype: VectorType = "float32") -> None:
        self._file, self._dtype, self._count = file, dtype, 0
        empty = as_type(np.zeros((0, width), dtype=np.float32), dtype)
        self._width, self._descr = empty.shape[1], empty.dtype.newbyteorder("<").str
        self._write_header()
        self._header_size = file.tell()

    def write(self, vectors: Floats, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append vectors; the columns are ignored."""
        self._file.write(np.ascontiguousarray(as_type(vectors, self._dtype), dtype=self._descr).data)
        self._count += len(vectors)

    def close(self) -> None:
        """Write the number of vectors into the header."""
        self._file.seek(0)
        self._write_header()
        # NumPy pads headers so that the first dimension can grow in place.
        assert self._file.tell() == self._header_size

    def _write_header(self) -> None:
        shape = {"descr": self._descr, "fortran_order": False, "shape": (self._count, self._width)}
        np.lib.format.write_array_header_1_0(self._file, shape)


class ParquetFile(VectorFile):
    """A table with the given columns and a column "vector" of lists of one size.

    The type of a column is that of the Parquet file that it comes from, or else of its values in the first chunk. A
    column that is empty there is a text, with other values as JSON.
    """

    def __init__(
        self,
        file: BinaryIO,
        path: Path,
        width: int,
        columns: Sequence[str],
        types: Mapping[str, Any],
        dtype: VectorType = "float32",
    ) -> None:
        if VECTOR in columns:
            raise InputError(f"the column {VECTOR!r} is written by lightbert; rename that column of the input")
        with required(f"'{path}' requires pyarrow", "lightbert[data]"):
            import pyarrow
            import pyarrow.parquet
        self._arrow, self._parquet = pyarrow, pyarrow.parquet
        self._file, self._columns = file, tuple(columns)
        self._width, self._dtype = width, dtype
        empty = as_type(np.zeros((0, width), dtype=np.float32), dtype)
        self._vectors = pyarrow.list_(pyarrow.from_numpy_dtype(empty.dtype), empty.shape[1])
        self._types = dict(types)
        self._texts: set[str] = set()
        self._writer: Any = None

    def write(self, vectors: Floats, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append a row group."""
        arrays = [self._array(name, columns[name]) for name in self._columns]
        values = self._arrow.array(as_type(vectors, self._dtype).reshape(-1), type=self._vectors.value_type)
        lists = self._arrow.FixedSizeListArray.from_arrays(values, type=self._vectors)
        table = self._arrow.table([*arrays, lists], names=[*self._columns, VECTOR])
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        """Write the footer; without any text, the table is empty."""
        if self._writer is None:
            self.write(np.zeros((0, self._width), dtype=np.float32), dict.fromkeys(self._columns, ()))
        self._writer.close()

    def _array(self, name: str, values: Sequence[Any]) -> Any:
        column = [_as_text(value) for value in values] if name in self._texts else list(values)
        known = self._types.get(name)
        expected = f"{known}, like the first rows" if known else "values of one type"
        try:
            array = self._arrow.array(column, type=known)
        except (self._arrow.ArrowException, OverflowError) as error:
            raise InputError(f"the column {name!r} must contain {expected} ({error}); leave it out of --keep") from None
        for value, stored in zip(column, array.to_pylist(), strict=True):
            if not _same(value, stored):
                raise InputError(f"the column {name!r} must contain {expected}, got {value!r}; leave it out of --keep")
        if self._arrow.types.is_null(array.type):
            self._texts.add(name)
            array = array.cast(self._arrow.string())
        self._types[name] = array.type
        return array


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _same(value: Any, stored: Any) -> bool:
    """Whether a value survived its conversion to the type of its column, in which records have all fields."""
    if isinstance(value, dict):
        return isinstance(stored, dict) and all(_same(item, stored.get(key)) for key, item in value.items())
    if isinstance(value, list):
        return isinstance(stored, list) and len(value) == len(stored) and all(map(_same, value, stored))
    is_nan = value != value
    return bool(value == stored or (is_nan and stored != stored))
