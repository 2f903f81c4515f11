"""What limits the training steps that miss their targets: the least times of their FLOPs and bytes."""

from collections.abc import Iterator

from lightbert.bench.training import TrainingSpeed
from lightbert.bench.training_rows import Row
from lightbert.bench.training_targets import Figure

_SHOWN = 3
"""Kinds of kernels of a row, the longest."""


def missed_targets(speed: TrainingSpeed) -> Iterator[str]:
    """A section of the page: for each missed target of tokens/s, how far away it is and where the time goes."""
    ours = {row.case: row for row in speed.rows if row.library == "lightbert" and all(speed.least(row))}
    missed = [
        each for each in speed.figures if each.verdict == "missed" and each.cases and ours.keys() >= {*each.cases}
    ]
    if not missed:
        return
    yield """## What limits missed targets

The least times are those of FLOPs and bytes above, one after the other, as if products never waited for memory.
"""
    for figure in missed:
        rows = [ours[case] for case in figure.cases]
        yield f"- {figure.what}: " + (_speed(speed, figure, *rows) if len(rows) == 1 else _ratio(speed, figure, *rows))
    yield ""


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
