"""Ranges of numeric keys, given as annotations: ``dropout: Annotated[float, Range(0, 1, closed="left")]``."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from lightbert.errors import InputError

LARGEST_DEPTH = 1000
LARGEST_DIMENSION = 2**24
LARGEST = 2**53
"""The largest integer of a key; integers up to it are exact in JSON and in floating-point arithmetic."""


@dataclass(frozen=True)
class Range:
    """An interval from `low` to `high`; `closed` names the endpoints that it includes."""

    low: float = -math.inf
    high: float = math.inf
    closed: Literal["both", "left", "right", "neither"] = "both"

    @property
    def _is_technical(self) -> bool:
        """Whether the upper limit only excludes absurd values; messages name it only if it is exceeded."""
        return self.high in (LARGEST_DEPTH, LARGEST_DIMENSION, LARGEST)

    def __contains__(self, value: float) -> bool:
        above = value >= self.low if self.closed in ("both", "left") else value > self.low
        below = value <= self.high if self.closed in ("both", "right") else value < self.high
        return above and below

    def __str__(self) -> str:
        left, right = self.closed in ("both", "left"), self.closed in ("both", "right")
        if math.isinf(self.high) or self._is_technical:
            return f"{'>=' if left else '>'} {self.low}"
        if math.isinf(self.low):
            return f"{'<=' if right else '<'} {self.high}"
        return f"in {'[' if left else '('}{self.low}, {self.high}{']' if right else ')'}"

    def check(self, key: str, value: float) -> None:
        """Raise an error that names `key` unless `value` is in the range."""
        if value > self.high and self._is_technical:
            raise InputError(f"{key} must be <= {self.high}, got {value}")
        if value not in self:
            raise InputError(f"{key} must be {self}, got {value}")


Count = Annotated[int, Range(0, LARGEST)]
Size = Annotated[int, Range(1, LARGEST)]
Dimension = Annotated[int, Range(1, LARGEST_DIMENSION)]
"""A size of a model."""
OptionalDimension = Annotated[int, Range(0, LARGEST_DIMENSION)]
Depth = Annotated[int, Range(1, LARGEST_DEPTH)]
Threads = Annotated[int, Range(0, 1024)]
Seed = Annotated[int, Range(0, 2**63, closed="left")]
NonNegative = Annotated[float, Range(0)]
Positive = Annotated[float, Range(0, closed="neither")]
Share = Annotated[float, Range(0, 1)]
"""A fraction, including 0 and 1."""
PositiveShare = Annotated[float, Range(0, 1, closed="right")]
PartialShare = Annotated[float, Range(0, 1, closed="left")]
"""A fraction less than 1, such as a dropout rate."""
