"""Figures that follow from the rows of the training benchmark, each next to its target."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Limit = Literal["at least", "at most", ""]


class Measured(Protocol):
    """A row of the benchmark."""

    @property
    def case(self) -> str: ...  # noqa: D102
    @property
    def library(self) -> str: ...  # noqa: D102
    @property
    def milliseconds(self) -> float: ...  # noqa: D102
    @property
    def tokens_per_second(self) -> float: ...  # noqa: D102
    @property
    def gibibytes(self) -> float: ...  # noqa: D102


@dataclass(frozen=True)
class Figure:
    """A figure with its target; ``limit`` "" means that there is none."""

    what: str
    value: float
    unit: str = ""
    limit: Limit = ""
    target: float = 0.0
    cases: tuple[str, ...] = ()
    """The row of tokens/s, or the two rows of a ratio of them, ours; none for other figures of rows."""
    kernels: tuple[str, ...] = ()
    """The passes of our kernel that the figure is about; none if it is not about a kernel alone."""

    @property
    def verdict(self) -> str:
        """Return "reached" or "missed"; "" without a target."""
        if not self.limit:
            return ""
        reached = self.value >= self.target if self.limit == "at least" else self.value <= self.target
        return "reached" if reached else "missed"

    @property
    def goal(self) -> str:
        """The target in words, such as "at least 3.5"."""
        return f"{self.limit} {self.target:g}" if self.limit else ""


_SPEED = "million tokens/s"
_SPEEDS = (
    ("convbert-small 1024×128", 3.5),
    ("convbert-small 128×128", 2.5),
    ("convbert-small 128×512", 3.1),
    ("mobilebert 512×128", 1.8),
    ("convbert-base 256×128", 0.8),
    ("convbert-small 1024×128, RTD step on two streams", 3.0),
    ("convbert-small 256×128, RTD step on two streams", 2.4),
)
_MEMORY = (("convbert-small 1024×128", 13.0), ("mobilebert 512×128", 14.0))
_RATIOS: tuple[tuple[str, str, str, Limit, float], ...] = (
    ("time of composite / absolute", "composite-small-absolute 1024×128", "composite-small 1024×128", "at most", 1.2),
    ("tokens/s of ConvBERT / BERT-small, 1024×128", "convbert-small 1024×128", "bert-small 1024×128", "at least", 1.0),
    ("tokens/s of ConvBERT / BERT-small, 128×512", "convbert-small 128×512", "bert-small 128×512", "at least", 1.0),
    ("tokens/s of ConvBERT / BERT-base", "convbert-base 256×128", "bert-base 256×128", "at least", 1.0),
    (
        "tokens/s of packed rows / rows of one text",
        "convbert-small 256×128, RTD step, packed rows",
        "convbert-small 256×128, RTD step",
        "at least",
        0.95,
    ),
    (
        "tokens/s of two streams / one stream",
        "convbert-small 256×128, RTD step on two streams",
        "convbert-small 256×128, RTD step",
        "",
        0.0,
    ),
)
"""Name, numerator and denominator of a ratio of tokens/s; a ratio of times has them exchanged."""
_FINETUNING = ("convbert-small, fine-tuning, batch 32", 90.0)


def figures(rows: Sequence[Measured]) -> tuple[Figure, ...]:
    """Return the figures whose rows were measured."""
    return tuple(_figures(rows))


def _figures(rows: Sequence[Measured]) -> Iterator[Figure]:
    ours = {row.case: row for row in rows if row.library == "lightbert"}
    theirs = {row.case: row for row in rows if row.library == "transformers"}
    for case, target in _SPEEDS:
        if case in ours:
            yield Figure(case, ours[case].tokens_per_second / 1e6, _SPEED, "at least", target, (case,))
    for case, target in _MEMORY:
        # 0 on a CPU, where memory is not measured.
        if case in ours and ours[case].gibibytes:
            yield Figure(case, ours[case].gibibytes, "GiB", "at most", target)
    for name, one, other, limit, target in _RATIOS:
        if one in ours and other in ours:
            ratio = ours[one].tokens_per_second / ours[other].tokens_per_second
            yield Figure(name, ratio, "", limit, target, (one, other))
    case, target = _FINETUNING
    if case in ours:
        yield Figure(case, 1e3 / ours[case].milliseconds, "steps/s", "at least", target)
    for case, row in theirs.items():
        ratio = ours[case].tokens_per_second / row.tokens_per_second
        yield Figure(f"tokens/s of lightbert / transformers, {case}", ratio)
