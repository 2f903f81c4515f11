"""Encoded examples of a task: rows of tokens of any length, with their targets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

IGNORE_INDEX = -100
"""The target of a token that has none, such as padding: it adds nothing to the loss."""


@dataclass(frozen=True)
class Features:
    """Rows one after another, without padding; several may come from one example (the windows of a long text)."""

    tokens: NDArray[np.int32]  # [Σt]
    starts: NDArray[np.int64]  # [n + 1], where each row begins, and the end of the last
    seconds: NDArray[np.int64]  # [n], where the second segment starts within its row; the row's length if there is none
    sources: NDArray[np.int64]  # [n], the example that a row belongs to
    targets: NDArray[Any] | None = None  # [n, …], or [Σt] when there is one for each token
    per_token: bool = False
    cut: int = 0
    """How many rows lost tokens because they were too long."""

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row."""
        return np.diff(self.starts)

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[int]],
        seconds: Sequence[int],
        sources: Sequence[int] | None = None,
        targets: NDArray[Any] | None = None,
        *,
        per_token: bool = False,
        cut: int = 0,
    ) -> "Features":
        """Put rows together; without ``sources`` each row is an example."""
        lengths = [len(row) for row in rows]
        return cls(
            tokens=np.fromiter((token for row in rows for token in row), dtype=np.int32, count=sum(lengths)),
            starts=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
            seconds=np.asarray(seconds, dtype=np.int64),
            sources=np.arange(len(rows)) if sources is None else np.asarray(sources, dtype=np.int64),
            targets=targets,
            per_token=per_token,
            cut=cut,
        )
