"""What a run reports as it goes: metrics.jsonl, the same numbers for TensorBoard, and the throughput.

metrics.jsonl has one line per step and per evaluation, the same bytes however often the run was interrupted.
"""

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightbert.errors import InputError
from lightbert.files import write_atomic


class TensorBoard:
    """Writes scalars to ``folder``; when a run resumes, what came after the checkpoint is purged."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError(
                "tensorboard=true requires the tensorboard package: pip install 'lightbert[track]'"
            ) from None
        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Add the numbers of one line of the log."""
        for name, value in values.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class MetricsFile:
    """Appends lines; when a run resumes, drops those after the checkpoint. It has no times: those never repeat.

    The same numbers go to ``board``.
    """

    def __init__(self, path: Path, step: int, board: TensorBoard | None = None) -> None:
        self.path, self.board = path, board
        self.held_out: dict[int, dict[str, Any]] = {}
        kept = []
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
                record = _parsed(line)
                if record is None or record["step"] > step:
                    break
                kept.append(line)
                if record.pop("kind") == "held-out":
                    self.held_out[record.pop("step")] = record
        write_atomic(path, "".join(kept))
        self._file = path.open("a", encoding="utf-8")

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Append one line."""
        finite = {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in values.items()}
        with self._explained():
            self._file.write(json.dumps({"kind": kind, "step": step, **finite}) + "\n")
        if kind == "held-out":
            self.held_out[step] = values
        if self.board is not None:
            self.board.write(kind, step, finite)

    def flush(self) -> None:
        """Bring everything to the disk."""
        with self._explained():
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write the rest and close."""
        with self._explained():
            self._file.close()
        if self.board is not None:
            self.board.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"'{self.path}' cannot be written ({error.strerror}); make room and run the same command again"
            ) from error


def read(path: Path, kind: str) -> list[dict[str, Any]]:
    """All lines of a kind ("train" or "held-out")."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [record for line in lines if (record := _parsed(line + "\n")) and record["kind"] == kind]


def _parsed(line: str) -> dict[str, Any] | None:
    """A whole line, or None for one that a crash cut off."""
    try:
        record = json.loads(line) if line.endswith("\n") else None
    except ValueError:
        return None
    return record if isinstance(record, dict) and {"kind", "step"} <= record.keys() else None


class Meter:
    """Tokens per second, measured only where the host has waited for the device anyway.

    The first lap is left out of the average: it may contain compilation.
    """

    def __init__(self) -> None:
        self._mark = time.monotonic()
        self._laps = 0
        self._tokens, self._seconds = 0, 0.0
        self.latest = 0.0

    def lap(self, tokens: int) -> float:
        """Count ``tokens`` trained on since the last lap, and return the seconds that it took."""
        now = time.monotonic()
        seconds, self._mark = max(now - self._mark, 1e-9), now
        self.latest = tokens / seconds
        self._laps += 1
        if self._laps > 1:
            self._tokens += tokens
            self._seconds += seconds
        return seconds

    def pause(self) -> float:
        """Exclude the time since the last lap, such as an evaluation or a checkpoint, and return its seconds."""
        now = time.monotonic()
        seconds, self._mark = now - self._mark, now
        return seconds

    @property
    def started(self) -> bool:
        """Whether the first lap is over."""
        return self._laps > 0

    @property
    def average(self) -> float:
        """Tokens per second."""
        return self._tokens / self._seconds if self._seconds else self.latest
