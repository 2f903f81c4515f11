"""Files of vectors (.npy, .parquet), written incrementally."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from lightbert.errors import InputError, required, unknown
from lightbert.files import file_atomic, make_folder
from lightbert.tasks.predict.vectors import Floats

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
