"""Lines, records and rows of files, plain or compressed; a damaged file raises an error instead of ending early."""

import bz2
import gzip
import io
import json
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self, cast

from lightbert.errors import InputError, listed, required

Undecodable = Literal["error", "replace"]

COMPRESSIONS = (".gz", ".xz", ".bz2", ".zst")
BOM = b"\xef\xbb\xbf"

# Bounds the memory of a line; prose never has longer lines.
MAX_LINE_BYTES = 1 << 26
_MAX_SKIPPED_BLOCKS = 64
_BLOCK = 1 << 18


def byte_lines(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield each line with its line ending, and the number of bytes of the file on disk read so far."""
    with _open(path) as (file, position):
        while line := file.readline(MAX_LINE_BYTES):
            if len(line) == MAX_LINE_BYTES:
                raise InputError(
                    f"'{path}' has a line of more than {MAX_LINE_BYTES >> 20} MiB; check that it is a text file"
                )
            yield line, position()


def bounded_lines(file: IO[bytes], name: str) -> Iterator[bytes | None]:
    """Yield each line of a stream, or None for a line that is too long to keep; one without an end is an error."""
    while line := file.readline(MAX_LINE_BYTES):
        if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
            yield line
            continue
        for _ in range(_MAX_SKIPPED_BLOCKS):
            line = file.readline(MAX_LINE_BYTES)
            if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
                break
        else:
            raise InputError(
                f"{name} has a line of more than {_MAX_SKIPPED_BLOCKS * MAX_LINE_BYTES >> 30} GiB; check it"
            )
        yield None


def bounded_file_lines(path: Path) -> Iterator[bytes | None]:
    """Yield each line of a file, plain or compressed, or None for a line that is too long to keep."""
    with _open(path) as (file, _):
        yield from bounded_lines(file, f"'{path}'")


def lines(path: Path, undecodable: Undecodable = "error") -> Iterator[tuple[str, int]]:
    """Yield each line without its line ending, and the number of bytes of the file on disk read so far."""
    offset = 0
    for raw, position in byte_lines(path):
        content = raw.removeprefix(BOM) if offset == 0 else raw
        try:
            line = content.decode("utf-8", "replace" if undecodable == "replace" else "strict")
        except UnicodeDecodeError as error:
            where = offset + len(raw) - len(content) + error.start
            raise InputError(
                f"'{path}' is not UTF-8 at byte {where}; convert it, or pass --undecodable replace"
            ) from None
        yield line.rstrip("\r\n"), position
        offset += len(raw)


MAX_DOCUMENT = 2**30
"""The maximum size of a file that is read as a whole, in bytes."""


def read_decompressed(path: Path) -> bytes:
    """Read a whole file and decompress it if necessary."""
    with _open(path) as (file, _):
        content = file.read(MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        raise InputError(f"'{path}' must have at most {MAX_DOCUMENT:,} bytes when decompressed; split it")
    return content


def json_lines(path: Path, field: str, undecodable: Undecodable = "error") -> Iterator[tuple[str, int]]:
    """Yield the text `field` of each line of a .jsonl file, with the bytes read so far."""
    for number, (line, position) in enumerate(lines(path, undecodable), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise InputError(f"line {number} of '{path}' is not JSON; each line must be one JSON object") from None
        text = record.get(field) if isinstance(record, dict) else None
        if not isinstance(text, str):
            has = f"no text in {field!r}" if isinstance(record, dict) and field in record else f"no field {field!r}"
            raise InputError(f"line {number} of '{path}' has {has}; set the field with --text, or remove the line")
        yield text, position


def parquet_rows(path: Path, column: str) -> Iterator[tuple[str, int]]:
    """Yield the text `column` of each row of a .parquet file, with the approximate number of bytes read so far."""
    with required(f"'{path}' requires pyarrow", "lightbert[data]"):
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    size, rows = path.stat().st_size, 0
    try:
        with ParquetFile(path) as file:
            if column not in file.schema_arrow.names:
                names = listed(file.schema_arrow.names)
                raise InputError(f"'{path}' has no column {column!r}, only {names}; set the column with --text")
            for batch in file.iter_batches(batch_size=1024, columns=[column]):
                for text in batch.column(0).to_pylist():
                    rows += 1
                    if not isinstance(text, str):
                        raise InputError(
                            f"row {rows} of '{path}' has no text in column {column!r}; set another column with --text"
                        )
                    yield text, size * rows // file.metadata.num_rows
    except UnicodeDecodeError:
        raise InputError(
            f"row {rows + 1} of '{path}' or a later one is not UTF-8; convert the column {column!r}"
        ) from None
    except (ArrowException, OSError) as error:
        raise InputError(f"'{path}' is damaged or not a Parquet file ({error}); copy it again") from error


@contextmanager
def _open(path: Path) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """Open a file for reading decompressed bytes, with a function that returns the position in the file on disk."""
    try:
        with path.open("rb") as raw:
            yield _decompressed(raw, path), raw.tell
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise _damaged(path, error) from error
    except OSError as error:
        # bz2 raises an OSError without errno for damaged data; all others are errors of the file system.
        if error.errno is None:
            raise _damaged(path, error) from error
        raise InputError(f"cannot read '{path}': {error.strerror}; check the file") from error


def _decompressed(raw: IO[bytes], path: Path) -> IO[bytes]:
    match path.suffix.lower():
        case ".gz":
            # GzipFile reads line by line in Python; a buffered reader is several times as fast.
            return cast("IO[bytes]", io.BufferedReader(cast("Any", gzip.GzipFile(fileobj=raw)), _BLOCK))
        case ".xz":
            return cast("IO[bytes]", io.BufferedReader(cast("Any", lzma.LZMAFile(raw)), _BLOCK))
        case ".bz2":
            return cast("IO[bytes]", io.BufferedReader(cast("Any", bz2.BZ2File(raw)), _BLOCK))
        case ".zst":
            return cast("IO[bytes]", io.BufferedReader(_ZstdReader(raw, path), _BLOCK))
    return raw


class _ZstdReader(io.RawIOBase):
    """Reads consecutive Zstandard frames; unlike the library's own reader, it detects a truncated file."""

    def __init__(self, raw: IO[bytes], path: Path) -> None:
        with required(f"'{path}' requires zstandard", "lightbert[data]"):
            import zstandard
        self._raw, self._library = raw, zstandard
        self._frame: Any = None
        self._pending = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._pending and self._fill():
            pass
        count = min(len(buffer), len(self._pending))
        buffer[:count], self._pending = self._pending[:count], self._pending[count:]
        return count

    def _fill(self) -> bool:
        """Decompress one more block; return False at the end of the file."""
        block = self._frame.unused_data if self._frame is not None and self._frame.eof else b""
        block = block or self._raw.read(_BLOCK)
        if not block:
            if self._frame is not None and not self._frame.eof:
                raise EOFError("the last frame is incomplete")
            return False
        if self._frame is None or self._frame.eof:
            self._frame = self._library.ZstdDecompressor().decompressobj()
        try:
            self._pending = self._frame.decompress(block)
        except self._library.ZstdError as error:
            raise EOFError(str(error)) from error
        return True


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"'{path}' is truncated or not a valid {path.suffix} file ({error}); copy it again")


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
    match = _SURROGATE.search(text)
    if match is None:
        return ""
    code = ord(match[0])
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
        level = [inner for value in level for inner in _items(value)]
        if not level:
            break
    else:
        return f"is nested more than {_MAX_LEVELS} levels deep"
    # Only an escape sequence such as \ud83d can still contain an unpaired surrogate.
    return decoding_problem(json.dumps(record, ensure_ascii=False)) if "\\ud" in line.lower() else ""


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
