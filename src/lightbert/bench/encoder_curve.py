"""The learning curve of an encoder: its mean score against the tokens of its pre-training, and a fit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from lightbert.bench.encoder_records import Records


@dataclass(frozen=True)
class Target:
    """The published scores of a model on the five tasks, in points."""

    label: str
    scores: dict[str, float]
    squad: float
    """F1 on SQuAD 1.1's development set."""

    @property
    def mean(self) -> float:
        """The mean of the tasks."""
        return fmean(self.scores.values())


TARGETS = (
    Target("ELECTRA-Small, dev", {"cola": 56.8, "sst2": 88.3, "mrpc": 87.4, "stsb": 86.8, "rte": 68.5}, 73.8),
    Target("ConvBERT-small, dev", {"cola": 59.7, "sst2": 90.1, "mrpc": 86.8, "stsb": 87.7, "rte": 67.1}, 84.1),
)
"""ConvBERT Table 2, SQuAD from Table 4; 1 M updates of 128 × 128 tokens each."""


@dataclass(frozen=True)
class Point:
    """A model on the curve."""

    name: str
    tokens: int
    mean: float
    quoted: bool


@dataclass(frozen=True)
class Fit:
    """A line through the scores over the logarithm of the tokens."""

    per_doubling: float
    at_one_billion: float
    n_points: int

    def score(self, tokens: float) -> float:
        """The score that the line gives."""
        return self.at_one_billion + self.per_doubling * math.log2(tokens / 1e9)

    def tokens(self, score: float) -> float | None:
        """The tokens at which the line reaches a score; None if it never does."""
        if self.per_doubling <= 0:
            return None
        doublings = (score - self.at_one_billion) / self.per_doubling
        return 1e9 * 2**doublings if doublings < 100 else None


def points(records: Records) -> list[Point]:
    """The models with scores for all five tasks, by their tokens; without students, which are smaller."""
    found = [
        Point(each.name, records.tokens(each.of), mean, bool(each.source))
        for each in records.scores
        if (mean := each.mean) is not None and not records.is_student(each.of)
    ]
    return sorted(found, key=lambda point: point.tokens)


def fit(given: Sequence[Point]) -> Fit | None:
    """Least squares; None without two models of different tokens."""
    xs = [math.log2(point.tokens / 1e9) for point in given]
    if len(set(xs)) < 2:
        return None
    middle_x, middle_y = fmean(xs), fmean(point.mean for point in given)
    covariance = sum((x - middle_x) * (point.mean - middle_y) for x, point in zip(xs, given, strict=True))
    slope = covariance / sum((x - middle_x) ** 2 for x in xs)
    return Fit(slope, middle_y - slope * middle_x, len(given))
