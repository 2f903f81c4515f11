"""How fast a run goes: steps, tokens and FLOPs per second, measured where the host has waited for the device anyway."""

import time


class Meter:
    """Counts between marks. The first stretch is left out of the average: it may contain compilation."""

    def __init__(self) -> None:
        self._mark = time.monotonic()
        self._stretches = 0
        self._tokens, self._seconds = 0, 0.0
        self.latest = 0.0

    def lap(self, tokens: int) -> float:
        """Note that ``tokens`` were trained on since the last lap, and return the seconds it took."""
        now = time.monotonic()
        seconds, self._mark = max(now - self._mark, 1e-9), now
        self.latest = tokens / seconds
        self._stretches += 1
        if self._stretches > 1:
            self._tokens += tokens
            self._seconds += seconds
        return seconds

    def pause(self) -> float:
        """Leave the time since the last lap out: an evaluation or a checkpoint; return its seconds."""
        now = time.monotonic()
        seconds, self._mark = now - self._mark, now
        return seconds

    @property
    def started(self) -> bool:
        """Whether the first stretch is over."""
        return self._stretches > 0

    @property
    def average(self) -> float:
        """Tokens per second."""
        return self._tokens / self._seconds if self._seconds else self.latest
