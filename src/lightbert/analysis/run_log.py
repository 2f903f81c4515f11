"""Read the log of a run, metrics.jsonl, also while the run is in progress."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightbert.errors import InputError


def read_records(metrics: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a log, each with its "kind" and "step"."""
    with metrics.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            # The last line may be incomplete while the run is in progress.
            if not line.endswith("\n"):
                return
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                raise InputError(f"line {number} of '{metrics}' is not valid JSON; remove it") from None
            if not isinstance(record, dict) or "kind" not in record or type(record.get("step")) is not int:
                raise InputError(f"line {number} of '{metrics}' is not a JSON object with kind and step; remove it")
            yield record
