"""SIGTERM and SIGINT: the first signal makes the loop save and stop, the second exits at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 75
"""Exit code of a run that was interrupted and saved (EX_TEMPFAIL); the same command resumes it."""


class Interruption:
    """A flag set by the first signal; the loop checks it between steps, evaluations and checkpoints."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Store the first signal; exit on the second."""
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = number
        os.write(2, b"interrupted: saving a checkpoint; a second signal exits at once\n")


@contextmanager
def catch_signals() -> Iterator[Interruption]:
    """Handle both signals within the body; only in the main thread, since Python allows no handlers elsewhere."""
    caught = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {number: signal.signal(number, caught.handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
