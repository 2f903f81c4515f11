"""Calls a function in a process that is started with a number of threads; see `thread_environment`."""

import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightbert.errors import InputError
from lightbert.thread_environment import VARIABLE
from lightbert.watched_process import ProcessFailedError, Report, call


def call_with_threads(function: str, arguments: Sequence[Any], threads: int, report: Report) -> str:
    """Return the string that `function`, written as "module:name", returns in such a process; see `watched_process`."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return call(
                function,
                arguments,
                Path(folder),
                report=report,
                environment={VARIABLE: str(threads)},
                # For the compilers of torch.compile.
                waits=True,
            )
        except ProcessFailedError as error:
            if error.code is not None and error.code < 0:
                name = signal.Signals(-error.code).name
                raise InputError(
                    f"the measuring process was ended by {name}; if memory ran out, choose smaller models"
                ) from error
            # The command line recognises lack of memory by the text.
            raise RuntimeError(f"the measuring process failed:\n{error.printed}") from error
