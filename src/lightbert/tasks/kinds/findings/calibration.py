"""Whether a model is right as often as it says: confidence beside accuracy."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from lightbert.errors import InputError
from lightbert.tasks.kinds.findings.finding import Finding, Table

_BAR = 20


@dataclass(frozen=True)
class Bin:
    """The predictions whose confidence lies in (low, high]; the means are 0 when there are none."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """Bins of equal width over (0, 1], and the expected calibration error (Guo et al. 2017, Eq. 3)."""

    error: float
    """The mean over all predictions of their bin's distance between confidence and accuracy."""
    bins: tuple[Bin, ...]


def calibration(confidences: Sequence[float], right: Sequence[bool], bins: int = 15) -> Calibration:
    """Compare the probability of each predicted label with how often such predictions are right."""
    if bins < 1:
        raise InputError(f"bins must be >= 1, got {bins}")
    if not len(confidences) or len(confidences) != len(right):
        raise InputError(
            f"calibration needs one confidence per prediction, got {len(confidences):,} confidences for "
            f"{len(right):,} predictions"
        )
    p, ok = np.asarray(confidences, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise InputError("confidences must be in [0, 1]: give probabilities, not logits")
    edges = np.linspace(0, 1, bins + 1)
    # A confidence of exactly 0 has no bin of its own; it goes to the first.
    places = np.clip(np.searchsorted(edges, p, side="left") - 1, 0, bins - 1)
    counts = np.bincount(places, minlength=bins)
    divisors = np.maximum(counts, 1)
    confidence = np.bincount(places, weights=p, minlength=bins) / divisors
    accuracy = np.bincount(places, weights=ok, minlength=bins) / divisors
    rows = zip(edges[:-1], edges[1:], counts, confidence, accuracy, strict=True)
    return Calibration(
        error=float((counts * np.abs(confidence - accuracy)).sum() / len(p)),
        bins=tuple(Bin(float(low), float(high), int(n), float(c), float(a)) for low, high, n, c, a in rows),
    )


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
