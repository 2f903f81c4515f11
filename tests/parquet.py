"""Parquet files, for tests that are skipped where pyarrow is not installed."""

from pathlib import Path
from typing import Any

import pytest


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    """Write a table of columns."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), path)
    return path
