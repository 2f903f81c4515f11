"""SIGTERM and SIGINT: the first asks the loop to save and stop, the second ends the process at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 75
"""What a run that was interrupted and saved exits with (EX_TEMPFAIL): the same command goes on where it stopped."""


class Interruption:
    """Set by the first signal; the loop looks at it between steps, evaluations and savings."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Remember the first signal, obey the second."""
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = number
        os.write(2, b"interrupted: saving; a second signal stops at once\n")


@contextmanager
def catch_signals() -> Iterator[Interruption]:
    """Catch both signals within the body; outside of the main thread, where Python allows no handlers, none."""
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
