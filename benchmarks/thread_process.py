"""Calls a function in a process that is started with a number of threads; see `lightbert.processes`."""

import signal
from collections.abc import Sequence
from typing import Any

from lightbert.errors import InputError
from lightbert.processes import THREADS, ProcessFailedError, Report, call


def call_with_threads(function: str, arguments: Sequence[Any], threads: int, report: Report) -> str:
    """Return the string that `function`, written as "module:name", returns in such a process."""
    try:
        return call(function, arguments, report=report, environment={THREADS: str(threads)})
    except ProcessFailedError as error:
        if error.code < 0:
            name = signal.Signals(-error.code).name
            raise InputError(
                f"the measuring process was ended by {name}; if memory ran out, choose smaller models"
            ) from error
        # The command line recognises lack of memory by the text.
        raise RuntimeError(f"the measuring process failed:\n{error.printed}") from error
