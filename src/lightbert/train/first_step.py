"""The first step of a phase, which takes longer than the others: on a GPU it compiles."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import torch

from lightbert.progress import Bar
from lightbert.train.distributed import World


class FirstStep:
    """Time the first step of every phase, and say on a GPU how long it compiled.

    compiles: whether torch.compile is used; it compiles when it sees the first batch of a shape.
    """

    def __init__(self, world: World, *, compiles: bool) -> None:
        self.world = world
        self._says = compiles and world.device.type == "cuda"
        self._created = monotonic()
        self._expected = False
        self.start_seconds = 0.0
        """Seconds from the creation of this object to the end of the run's first step."""

    def expect(self) -> None:
        """The next step is the first one of a phase."""
        self._expected = True

    @contextmanager
    def timed(self, bar: Bar) -> Iterator[None]:
        """Run a step in the body."""
        if not self._expected:
            yield
            return
        self._expected = False
        began = monotonic()
        with bar.redrawn():
            yield
            if self.world.device.type == "cuda":
                torch.cuda.synchronize(self.world.device)
        now = monotonic()
        self.start_seconds = self.start_seconds or now - self._created
        if self._says and self.world.is_main:
            print(f"compiling: {now - began:.0f} s", file=sys.stderr)
