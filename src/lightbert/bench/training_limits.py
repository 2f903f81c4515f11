"""What limits the training steps and kernels that miss their targets: the least times of their FLOPs and bytes."""

from collections.abc import Iterator

from lightbert.bench.training import TrainingSpeed
from lightbert.bench.training_rows import Row
from lightbert.bench.training_targets import Figure

_SHOWN = 3
"""Kinds of kernels of a row, the longest."""


def missed_targets(speed: TrainingSpeed) -> Iterator[str]:
    """A section of the page: how far away each missed target of steps and kernels is, and where the time goes."""
    limits = [*_of_rows(speed), *_of_kernels(speed)]
    if limits:
        yield """## What limits missed targets

The least times of a step are those of FLOPs and bytes above, one after the other, as if products never waited for
memory; of a kernel alone, which can overlap both, the longer one counts.
"""
        yield from limits
        yield ""


def _of_rows(speed: TrainingSpeed) -> Iterator[str]:
    ours = {row.case: row for row in speed.rows if row.library == "lightbert" and all(speed.least(row))}
    for figure in speed.figures:
        if figure.verdict == "missed" and figure.cases and ours.keys() >= {*figure.cases}:
            rows = [ours[case] for case in figure.cases]
            limit = _speed(speed, figure, *rows) if len(rows) == 1 else _ratio(speed, figure, *rows)
            yield f"- {figure.what}: {limit}"


def _of_kernels(speed: TrainingSpeed) -> Iterator[str]:
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


def _speed(speed: TrainingSpeed, figure: Figure, row: Row) -> str:
    wanted = row.milliseconds * figure.value / figure.target
    products, bytes_moved = speed.least(row)
    share = (products + bytes_moved) / wanted
    return (
        f"{row.milliseconds:.2f} ms, the target is {wanted:.2f}. FLOPs take {products:.2f} and bytes "
        f"{bytes_moved:.2f}, {share:.0%} of the target.{_longest(row)}"
    )


def _ratio(speed: TrainingSpeed, figure: Figure, one: Row, other: Row) -> str:
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
