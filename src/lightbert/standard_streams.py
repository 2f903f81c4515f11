"""Standard output and error that never stop a command: closed, left by their reader, or with a small character set."""

import codecs
import io
import json
import os
import sys
from typing import Any, TextIO

_ESCAPED = "lightbert.escaped"


def set_up() -> None:
    """Prepare the standard streams of a process; called once, before anything is printed."""
    _open_closed_descriptors()
    codecs.register_error(_ESCAPED, _escape)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = _stream(sys.stdout, _Output(1, "w", closefd=False))
    # Messages and progress bars are lost if nobody reads them any more; the work goes on.
    sys.stderr = _stream(sys.stderr, _IgnoringErrors(2, "w", closefd=False))


class OutputError(OSError):
    """Standard output can't be written, for example because its disk is full."""


class _Output(io.FileIO):
    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from None


class _IgnoringErrors(io.FileIO):
    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError:
            return len(memoryview(content).cast("B"))


def _open_closed_descriptors() -> None:
    """Open the null device in place of closed descriptors, which the next opened files would get otherwise."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)


def _stream(before: TextIO | None, raw: io.FileIO) -> TextIO:
    encoding = before.encoding if before is not None else "utf-8"
    buffered = before.line_buffering if isinstance(before, io.TextIOWrapper) else False
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, _ESCAPED, line_buffering=buffered)


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Write characters that the stream can't represent as in JSON, where the result has the same meaning."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
