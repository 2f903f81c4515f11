"""metrics.jsonl: one line per step and per evaluation, the same bytes however often the run was interrupted."""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.train.board import Board


class MetricsFile:
    """Appends lines; on resuming, drops those after the checkpoint. Times are not in it: they never repeat.

    A ``board`` is shown the same numbers.
    """

    def __init__(self, path: Path, step: int, board: Board | None = None) -> None:
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
