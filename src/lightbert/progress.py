"""Progress reporting on stderr: a live bar on a terminal, a plain line every few seconds elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_FRAMES = 0.1
_CENTURY = 100 * 365.25 * 86400

_clock = time.monotonic


class Bar:
    """The state of a progress bar, created by `progress`; the caller updates it with `advance` and `note`.

    `total` can be set or changed later, once it can be estimated.
    """

    def __init__(self, label: str, total: int | None, unit: str, done: int) -> None:
        self.label = label
        self.total = total
        self.unit = unit
        self.done = done
        self.notes: dict[str, float | str] = {}
        self._initial = done
        self._started = self._drawn = _clock()
        self._seconds_between_drawings = 0.0
        self._draw: Callable[[], None] = lambda: None

    def advance(self, amount: int = 1) -> None:
        """Count `amount` more units as done; with 0, only redraw the bar, if that is due."""
        self.done += amount
        self._draw_if_due()

    def note(self, **values: float | str) -> None:
        """Show values such as the loss next to the bar until they are updated."""
        self.notes.update(values)
        self._draw_if_due()

    def status(self) -> str:
        """Return count, rate, remaining time and notes as one line."""
        seconds = _clock() - self._started
        rate = (self.done - self._initial) / seconds if seconds > 0 else 0.0
        count = f"{self.done:,}" if self.total is None else f"{self.done:,}/{self.total:,}"
        parts = [f"{count} {self.unit}".rstrip()]
        # A rate of 0 would be misleading where nothing was left to do, or nothing is done yet.
        if rate > 0:
            parts.append(f"{rate:,.{0 if rate >= 100 else 2}f} {self.unit}/s".replace(" /", "/"))
            finished = self.total is None or self.done >= self.total
            left = 0.0 if self.total is None else (self.total - self.done) / rate
            parts.append(f"{_duration(seconds)} taken" if finished else f"{_duration(left)} left")
        parts += [f"{name} {value if isinstance(value, str) else f'{value:.4g}'}" for name, value in self.notes.items()]
        return ", ".join(parts)

    @contextmanager
    def redrawn(self) -> Iterator[None]:
        """Redraw the bar from a thread while the body computes without calling `advance`."""
        stop = threading.Event()

        def redraw() -> None:
            while not stop.wait(_SECONDS_BETWEEN_FRAMES):
                self._draw_if_due()

        thread = threading.Thread(target=redraw, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def set_renderer(self, draw: Callable[[], None], seconds_between: float) -> None:
        """Call `draw` after each change, at most once every `seconds_between` seconds."""
        self._draw, self._seconds_between_drawings = draw, seconds_between

    def is_due(self) -> bool:
        """Whether the time until the next drawing is over."""
        return _clock() - self._drawn >= self._seconds_between_drawings

    def _draw_if_due(self) -> None:
        if self.is_due():
            self._drawn = _clock()
            self._draw()


@contextmanager
def progress(label: str, total: int | None = None, unit: str = "", done: int = 0) -> Iterator[Bar]:
    """Show the progress of the body; `done` is the number of units that an interrupted run finished earlier."""
    bar = Bar(label, total, unit, done)
    with _live(bar) if sys.stderr.isatty() else _lines(bar):
        yield bar


@contextmanager
def _lines(bar: Bar) -> Iterator[None]:
    printed: tuple[object, ...] = ()

    def draw() -> None:
        nonlocal printed
        printed = bar.done, bar.total, dict(bar.notes)
        print(f"{bar.label}: {bar.status()}", file=sys.stderr, flush=True)

    bar.set_renderer(draw, _SECONDS_BETWEEN_LINES)
    try:
        yield
    finally:
        # The last update may have printed the same counts a moment ago.
        if printed != (bar.done, bar.total, bar.notes) or bar.is_due():
            draw()


@contextmanager
def _live(bar: Bar) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[status]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True)) as display:
        task = display.add_task(bar.label, total=bar.total, completed=bar.done, status=bar.status())

        def draw() -> None:
            display.update(task, total=bar.total, completed=bar.done, status=bar.status())

        bar.set_renderer(draw, _SECONDS_BETWEEN_FRAMES)
        try:
            yield
        finally:
            draw()


def _duration(seconds: float) -> str:
    # A timedelta has an upper limit, too.
    return str(timedelta(seconds=round(seconds))) if seconds < _CENTURY else "more than 100 years"
