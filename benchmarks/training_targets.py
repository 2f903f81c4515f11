"""Figures that follow from the rows of the training benchmark, each next to its target."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from benchmarks.training_rows import Figure, Limit, Row

if TYPE_CHECKING:
    from benchmarks.training import TrainingSpeed


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


_SHOWN = 3
"""Kinds of kernels of a row, the longest."""


def missed_targets(speed: "TrainingSpeed") -> Iterator[str]:
    """A section of the page: how far away each missed target of steps and kernels is, and where the time goes."""
    limits = [*_of_rows(speed), *_of_kernels(speed)]
    if limits:
        yield """## What limits missed targets

The least times of a step are those of FLOPs and bytes above, one after the other, as if products never waited for
memory; of a kernel alone, which can overlap both, the longer one counts.
"""
        yield from limits
        yield ""


def _of_rows(speed: "TrainingSpeed") -> Iterator[str]:
    ours = {row.case: row for row in speed.rows if row.library == "lightbert" and all(speed.least(row))}
    for figure in speed.figures:
        if figure.verdict == "missed" and figure.cases and ours.keys() >= {*figure.cases}:
            rows = [ours[case] for case in figure.cases]
            limit = _speed(speed, figure, *rows) if len(rows) == 1 else _ratio(speed, figure, *rows)
            yield f"- {figure.what}: {limit}"


def _of_kernels(speed: "TrainingSpeed") -> Iterator[str]:
    ceilings = (speed.matmul_tflops * 1e12, speed.copy_tbytes * 1e12)
    for figure in speed.kernels.figures:
        if figure.verdict == "missed" and figure.kernels and all(ceilings):
            passes = [each for each in speed.kernels.passes if each.what in figure.kernels]
            taken = sum(each.microseconds for each in passes)
            least = [each.least(*ceilings) for each in passes]
            products, bytes_moved = (sum(times) for times in zip(*least, strict=True))
            change = figure.target / figure.value
            wanted = taken * change if figure.limit == "at most" else taken / change
            share = sum(map(max, least)) / wanted
            yield (
                f"- {figure.what}: {taken:.1f} µs, the target is {wanted:.1f}. FLOPs take {products:.1f} and bytes "
                f"{bytes_moved:.1f}: by the longer of both, {share:.0%} of the target."
            )


def _speed(speed: "TrainingSpeed", figure: Figure, row: Row) -> str:
    wanted = row.milliseconds * figure.value / figure.target
    products, bytes_moved = speed.least(row)
    share = (products + bytes_moved) / wanted
    return (
        f"{row.milliseconds:.2f} ms, the target is {wanted:.2f}. FLOPs take {products:.2f} and bytes "
        f"{bytes_moved:.2f}, {share:.0%} of the target.{_longest(row)}"
    )


def _ratio(speed: "TrainingSpeed", figure: Figure, one: Row, other: Row) -> str:
    """Of tokens/s, or of times: the least times have the same ratio if nothing else takes any."""
    least = [sum(speed.least(row)) for row in (one, other)]
    profiles = "".join(f" {row.case}:{_longest(row)}" for row in (one, other) if row.kinds)
    return (
        f"{figure.value:.2f}; by the least times, {least[0]:.2f} and {least[1]:.2f} ms, it would be "
        f"{least[1] / least[0]:.2f}.{profiles}"
    )


def _longest(row: Row) -> str:
    """The longest kinds of kernels, as a sentence; "" if the row has no profile."""
    named = [f"{kind.name} {kind.microseconds / 1e3:.2f}" for kind in row.kinds[:_SHOWN]]
    return f" Longest, in ms: {', '.join(named)}." if named else ""
