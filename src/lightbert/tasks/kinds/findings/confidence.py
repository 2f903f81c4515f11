"""Calibration as a finding: what probabilities are worth."""

from collections.abc import Sequence
from dataclasses import asdict

from lightbert.tasks.kinds.findings.calibration import Bin, calibration
from lightbert.tasks.kinds.findings.finding import Finding, Table

_BAR = 20


def calibration_finding(
    confidences: Sequence[float], right: Sequence[bool], squares: Sequence[float] | None, meaning: str
) -> Finding:
    """Confidence beside accuracy, bin by bin; `squares` are the examples' squared errors, whose mean is Brier's score.

    `meaning` says whose confidence is meant, and what counts as right.
    """
    found = calibration(confidences, right)
    value = {"error": found.error, "bins": [asdict(each) for each in found.bins]}
    note = f"expected calibration error {found.error:.4f}"
    if squares is not None:
        value["brier"] = sum(squares) / len(squares)
        note += f", Brier score {value['brier']:.4f}"
    rows = [_row(each) for each in found.bins if each.count]
    columns = ("confidence", "count", "mean confidence", "accuracy", "accuracy ─ and confidence │")
    return Finding("calibration", value, (Table("Calibration", columns, rows, f"{meaning}: {note}"),))


def _row(each: Bin) -> tuple[str, int, float, float, str]:
    return (f"{each.low:.2f}–{each.high:.2f}", each.count, each.confidence, each.accuracy, reliability(each))


def reliability(each: Bin) -> str:
    """A line as long as the accuracy, with a mark where it should end."""
    end, mark = round(each.accuracy * _BAR), min(round(each.confidence * _BAR), _BAR - 1)
    line = ["─" if place < end else "·" for place in range(_BAR)]
    line[mark] = "│"
    return "".join(line)
