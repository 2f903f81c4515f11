"""Logs of a run: metrics.jsonl, TensorBoard, and throughput.

metrics.jsonl has one line per step and per evaluation. Its bytes don't depend on how often a run was interrupted.
"""

import itertools
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from lightbert.errors import InputError, required
from lightbert.files import write_atomic
from lightbert.progress import Bar
from lightbert.train.distributed import World


class MetricsFile:
    """Append lines to metrics.jsonl; a resumed run drops the lines after its checkpoint.

    Lines hold no times, so that a repeated run writes the same bytes.
    board: a folder for TensorBoard, to which the numbers go as well.
    """

    def __init__(self, path: Path, step: int, board: Path | None = None) -> None:
        self.path = path
        self._board: Any = None
        if board is not None:
            with required("tensorboard=true requires the tensorboard package", "lightbert[track]"):
                from torch.utils.tensorboard import SummaryWriter
            self._board = SummaryWriter(str(board), purge_step=step + 1)
        self.held_out: dict[int, dict[str, Any]] = {}
        kept = []
        for line, record in _read_lines(path):
            if record["step"] > step:
                break
            kept.append(line)
            if record.pop("kind") == "held-out":
                self.held_out[record.pop("step")] = record
        write_atomic(path, "".join(kept))
        self._file = path.open("a", encoding="utf-8")

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Append one line."""
        finite = {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in values.items()}
        with self._write_errors():
            self._file.write(json.dumps({"kind": kind, "step": step, **finite}) + "\n")
        if kind == "held-out":
            self.held_out[step] = values
        for name, value in finite.items() if self._board is not None else ():
            if isinstance(value, int | float):
                self._board.add_scalar(f"{kind}/{name}", value, step)

    def flush(self, *, sync: bool = True) -> None:
        """Make the lines visible to readers, and with ``sync`` durable: flushed to disk."""
        with self._write_errors():
            self._file.flush()
            if sync:
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close."""
        with self._write_errors():
            self._file.close()
        if self._board is not None:
            self._board.close()

    @contextmanager
    def _write_errors(self) -> Iterator[None]:
        """Turn an OSError into an InputError that names the file."""
        try:
            yield
        except OSError as error:
            raise InputError(
                f"can't write '{self.path}' ({error.strerror}); free disk space and run the same command again"
            ) from error


def read(path: Path, kind: str) -> list[dict[str, Any]]:
    """Read all lines of a kind ("train", "held-out" or "skipped")."""
    return [record for _, record in _read_lines(path) if record["kind"] == kind]


def _read_lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Read all lines with their records, without what a crash truncated at the end; damage elsewhere is an error."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    parsed = [(line, _parse(line)) for line in text.splitlines(keepends=True)]
    whole = list(itertools.takewhile(lambda item: item[1] is not None, parsed))
    if any(record is not None for _, record in parsed[len(whole) :]):
        raise InputError(
            f"line {len(whole) + 1} of '{path}' is damaged; restore the file, or remove it to start a new log"
        )
    return [(line, record) for line, record in whole if record is not None]


def _parse(line: str) -> dict[str, Any] | None:
    """Parse a line; None if it is truncated or damaged."""
    with suppress(ValueError, RecursionError):
        record = json.loads(line) if line.endswith("\n") else None
        if isinstance(record, dict) and isinstance(record.get("kind"), str) and type(record.get("step")) is int:
            return record
    return None


class Meter:
    """Measure tokens per second at points where the host has already synchronised with the device.

    The average excludes the first lap, which may include compilation.
    """

    def __init__(self) -> None:
        self._mark = time.monotonic()
        self._laps = 0
        self._tokens, self._seconds = 0, 0.0
        self.latest = 0.0

    def lap(self, tokens: int) -> float:
        """Count ``tokens`` processed since the last lap; return the seconds that passed."""
        now = time.monotonic()
        seconds, self._mark = max(now - self._mark, 1e-9), now
        self.latest = tokens / seconds
        self._laps += 1
        if self._laps > 1:
            self._tokens += tokens
            self._seconds += seconds
        return seconds

    def pause(self) -> float:
        """Exclude the time since the last lap, such as an evaluation or a checkpoint; return the seconds excluded."""
        now = time.monotonic()
        seconds, self._mark = now - self._mark, now
        return seconds

    @property
    def started(self) -> bool:
        """Whether the first lap is over."""
        return self._laps > 0

    @property
    def average(self) -> float:
        """Average tokens per second."""
        return self._tokens / self._seconds if self._seconds else self.latest


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of an evaluation, without the step and without lists of the batches."""
    return {name: value for name, value in record.items() if name not in ("kind", "step", "by_batch")}


def headline(metrics: dict[str, float]) -> str:
    """Return the metrics to show next to the progress bar: the first one, the loss and accuracies."""
    shown = [name for name in metrics if name in (next(iter(metrics)), "loss") or name.endswith("accuracy")]
    return " ".join(f"{name} {metrics[name]:.4g}" for name in shown)


class FirstStep:
    """Time the first step of every phase, and say on a GPU how long it compiled.

    compiles: whether torch.compile is used; it compiles when it sees the first batch of a shape.
    """

    def __init__(self, world: World, *, compiles: bool) -> None:
        self.world = world
        self._says = compiles and world.device.type == "cuda"
        self._created = monotonic()
        self.expected = False
        """Whether the next step is the first one of a phase."""
        self.start_seconds = 0.0
        """Seconds from the creation of this object to the end of the run's first step."""

    @contextmanager
    def timed(self, bar: Bar) -> Iterator[None]:
        """Run a step in the body."""
        if not self.expected:
            yield
            return
        self.expected = False
        began = monotonic()
        with bar.redrawn():
            yield
            if self.world.device.type == "cuda":
                torch.cuda.synchronize(self.world.device)
        now = monotonic()
        self.start_seconds = self.start_seconds or now - self._created
        if self._says and self.world.is_main:
            print(f"compiling: {now - began:.0f} s", file=sys.stderr)
