"""SIGTERM and SIGINT: the first signal makes the loop save and stop, the second exits at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

EXIT_CODE = 75
"""Exit code of an interrupted run (EX_TEMPFAIL): what was trained is saved, and the same command resumes it."""


class StoppedEarlyError(KeyboardInterrupt):
    """Raised by a signal while there is nothing to save: before the first step of a run or after its last."""


class Interruption:
    """A flag set by the first signal; the loop checks it between steps, evaluations and checkpoints."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._saves = False

    def __bool__(self) -> bool:
        return self.signal is not None

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within the body, a signal sets the flag; elsewhere it raises, because there is nothing to save."""
        self._saves = True
        try:
            yield
        finally:
            self._saves = False

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Store the first signal; exit on the second."""
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = number
        if self._saves:
            _say("interrupted: saving a checkpoint; a second signal exits at once")
            return
        _say("interrupted; run the same command again to continue")
        raise StoppedEarlyError


def _say(sentence: str) -> None:
    # `print` can't be used while the interrupted code prints. The reader of a pipe may be gone.
    with suppress(OSError):
        os.write(2, f"{sentence}\n".encode())


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
