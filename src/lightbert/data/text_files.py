"""Lines of files, plain or compressed, in any encoding; errors for what can't be read, and for bad rows."""

import bz2
import codecs
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self, cast

from lightbert.errors import InputError, required

Undecodable = Literal["error", "replace"]

COMPRESSIONS = (".gz", ".xz", ".bz2", ".zst")

# Bounds the memory of a line; prose never has longer lines.
MAX_LINE_BYTES = 1 << 26
MAX_DOCUMENT = 2**30
"""The maximum size of a file that is read as a whole, in bytes."""
_MAX_SKIPPED_BLOCKS = 64
_BLOCK = 1 << 18
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")


def bounded_lines(file: IO[bytes], name: str) -> Iterator[bytes | None]:
    """Yield each line of a stream, or None for a line that is too long to keep; one without an end is an error.

    A byte order mark is removed.
    """
    begins = True
    while line := file.readline(MAX_LINE_BYTES):
        blocks = 1
        while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            blocks += 1
            if blocks > _MAX_SKIPPED_BLOCKS:
                raise InputError(
                    f"{name} has a line of more than {_MAX_SKIPPED_BLOCKS * MAX_LINE_BYTES >> 30} GiB; check it"
                )
            line = file.readline(MAX_LINE_BYTES)
        yield None if blocks > 1 else line.removeprefix(_BOM) if begins else line
        begins = False


def byte_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[bytes | None, int]]:
    """Yield the `bounded_lines` of a file as UTF-8, and the number of bytes of the file on disk read so far."""
    with open_file(path, encoding) as (file, position):
        for line in bounded_lines(file, f"'{path}'"):
            yield line, position()


def lines(path: Path, undecodable: Undecodable = "error", encoding: str = "utf-8") -> Iterator[tuple[str, int]]:
    """Yield each line without its line ending, and the number of bytes of the file on disk read so far."""
    for number, (line, position) in enumerate(byte_lines(path, encoding), start=1):
        if line is None:
            raise InputError(
                f"'{path}' has a line of more than {MAX_LINE_BYTES >> 20} MiB; check that it is a text file"
            )
        try:
            text = line.decode("utf-8", "replace" if undecodable == "replace" else "strict")
        except UnicodeDecodeError as error:
            problem = f"is not UTF-8 (byte 0x{line[error.start]:02x})"
            raise InputError(f"line {number} of '{path}' {problem}; {_ENCODING}, or --undecodable replace") from None
        yield text.rstrip("\r\n"), position


def text_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """Yield each line with its line ending; `decoding_problem` detects lines that are not UTF-8."""
    for line, _ in byte_lines(path, encoding):
        if line is None:
            raise InputError(f"'{path}' has a line of more than {MAX_LINE_BYTES >> 20} MiB; check it")
        yield line.decode("utf-8", "surrogateescape")


def read_decompressed(path: Path, encoding: str = "utf-8") -> bytes:
    """Read a whole file as UTF-8, and decompress it if necessary."""
    with open_file(path, encoding) as (file, _):
        content = file.read(MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        raise InputError(f"'{path}' must have at most {MAX_DOCUMENT:,} bytes when decompressed; split it")
    return content


def check_encoding(encoding: str) -> None:
    """Check that an encoding of text is known."""
    try:
        known = codecs.lookup(encoding)._is_text_encoding
    except (LookupError, ValueError):
        known = False
    if not known:
        raise InputError(f"data.encoding must be an encoding such as utf-8, latin-1 or utf-16, got {encoding!r}")


@contextmanager
def open_file(path: Path, encoding: str = "utf-8") -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """Open a file for reading decompressed bytes in UTF-8, with a function that returns the position on disk.

    A damaged file raises an error instead of ending early.
    """
    # A pipe may have no writer, and a device no end.
    if path.exists() and not path.is_file():
        raise InputError(f"'{path}' must be a regular file; save the data first")
    try:
        with path.open("rb") as raw:
            yield as_utf8(_decompressed(raw, path), f"'{path}'", encoding), raw.tell
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise _damaged(path, error) from error
    except OSError as error:
        # bz2 raises an OSError without errno for damaged data; all others are errors of the file system.
        if error.errno is None:
            raise _damaged(path, error) from error
        raise InputError(f"cannot read '{path}': {error.strerror}; check the file") from error


def as_utf8(file: IO[bytes], name: str, encoding: str) -> IO[bytes]:
    """Return a stream of the same text in UTF-8."""
    if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
        return file
    return _buffered(_Chunks(_transcoded(file, name, encoding)))


def _transcoded(file: IO[bytes], name: str, encoding: str) -> Iterator[bytes]:
    decoder, offset = codecs.getincrementaldecoder(encoding)(), 0
    # A pipe is read as it fills.
    read = getattr(file, "read1", file.read)
    while True:
        block = read(_BLOCK)
        try:
            yield decoder.decode(block, final=not block).encode("utf-8", "surrogatepass")
        except UnicodeError as error:
            where = f" at byte {offset + error.start}" if isinstance(error, UnicodeDecodeError) else ""
            raise InputError(f"{name} is not {encoding}{where}; set another data.encoding") from None
        if not block:
            return
        offset += len(block)


def _decompressed(raw: IO[bytes], path: Path) -> IO[bytes]:
    match path.suffix.lower():
        case ".gz":
            return _buffered(gzip.GzipFile(fileobj=raw))
        case ".xz":
            return _buffered(lzma.LZMAFile(raw))
        case ".bz2":
            return _buffered(bz2.BZ2File(raw))
        case ".zst":
            return _buffered(_Chunks(_zstd_frames(raw, path)))
    return raw


def _buffered(file: Any) -> IO[bytes]:
    """A stream with fast lines: those of GzipFile are read in Python."""
    return cast("IO[bytes]", io.BufferedReader(file, _BLOCK))


class _Chunks(io.RawIOBase):
    """A stream of chunks of bytes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._pending = chunks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._pending and (chunk := next(self._chunks, None)) is not None:
            self._pending = chunk
        count = min(len(buffer), len(self._pending))
        buffer[:count], self._pending = self._pending[:count], self._pending[count:]
        return count


def _zstd_frames(raw: IO[bytes], path: Path) -> Iterator[bytes]:
    """Decompress consecutive frames; unlike the library's own reader, this detects a truncated file."""
    with required(f"'{path}' requires zstandard", "lightbert[data]"):
        import zstandard
    frame: Any = None
    while block := raw.read(_BLOCK):
        while block:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            try:
                yield frame.decompress(block)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from error
            block = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("the last frame is incomplete")


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"'{path}' is truncated or not a valid {path.suffix} file ({error}); copy it again")


def decoding_problem(text: str) -> str:
    """Return what is wrong with the encoding of a text, or an empty string."""
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


BadRows = Literal["error", "skip"]
_SKIP = ", or skip such rows with data.bad_rows=skip"
_ENCODING = "set data.encoding, usually latin-1"


class BadRowError(InputError):
    """A bad row, raised unless bad rows are skipped."""

    def __init__(self, sentence: str, change: str = "fix it", skip: str = _SKIP) -> None:
        super().__init__(f"{sentence}; {change}{skip}")


class BadRowHandler:
    """Raises an error for the first bad row, or skips and counts bad rows.

    As a context manager around the reading, it prints the number of skipped rows to stderr on exit.
    """

    skip_remedy = _SKIP

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
            raise BadRowError(sentence, _ENCODING if reason.startswith("is not UTF-8") else "fix it", self.skip_remedy)
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
