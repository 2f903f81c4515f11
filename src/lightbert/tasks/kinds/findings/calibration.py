"""Calibration: predicted confidence against observed accuracy."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from lightbert.errors import InputError
from lightbert.tasks.kinds.findings.finding import Finding, Table

_BAR = 20


@dataclass(frozen=True)
class Bin:
    """The predictions with a confidence in (low, high]; the means are 0 for an empty bin."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """Bins of equal width over (0, 1], and the expected calibration error (Guo et al. 2017, Eq. 3)."""

    error: float
    """The mean absolute difference between confidence and accuracy, weighted by the size of the bins."""
    bins: tuple[Bin, ...]


def calibration(confidences: Sequence[float], correct: Sequence[bool], bins: int = 15) -> Calibration:
    """Compare the confidence of predictions with their accuracy, in bins of equal width."""
    if bins < 1:
        raise InputError(f"bins must be >= 1, got {bins}")
    if not len(confidences) or len(confidences) != len(correct):
        raise InputError(
            f"calibration requires one confidence per prediction, got {len(confidences):,} confidences for "
            f"{len(correct):,} predictions"
        )
    p, hits = np.asarray(confidences, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise InputError("confidences must be in [0, 1]: give probabilities, not logits")
    edges = np.linspace(0, 1, bins + 1)
    # The first bin also takes a confidence of exactly 0.
    indices = np.clip(np.searchsorted(edges, p, side="left") - 1, 0, bins - 1)
    counts = np.bincount(indices, minlength=bins)
    divisors = np.maximum(counts, 1)
    confidence = np.bincount(indices, weights=p, minlength=bins) / divisors
    accuracy = np.bincount(indices, weights=hits, minlength=bins) / divisors
    rows = zip(edges[:-1], edges[1:], counts, confidence, accuracy, strict=True)
    return Calibration(
        error=float((counts * np.abs(confidence - accuracy)).sum() / len(p)),
        bins=tuple(Bin(float(low), float(high), int(n), float(c), float(a)) for low, high, n, c, a in rows),
    )


def calibration_finding(
    confidences: Sequence[float], correct: Sequence[bool], squares: Sequence[float] | None, meaning: str
) -> Finding:
    """Report calibration by bin.

    squares: squared errors of the probabilities; their mean is the Brier score.
    meaning: what the confidence refers to and what counts as correct, for the caption.
    """
    result = calibration(confidences, correct)
    value = {"error": result.error, "bins": [asdict(each) for each in result.bins]}
    note = f"expected calibration error {result.error:.4f}"
    if squares is not None:
        value["brier"] = sum(squares) / len(squares)
        note += f", Brier score {value['brier']:.4f}"
    rows = [_row(each) for each in result.bins if each.count]
    columns = ("confidence", "count", "mean confidence", "accuracy", "accuracy ─, confidence │")
    return Finding("calibration", value, (Table("Calibration", columns, rows, f"{meaning}: {note}"),))


def _row(each: Bin) -> tuple[str, int, float, float, str]:
    return (f"{each.low:.2f}–{each.high:.2f}", each.count, each.confidence, each.accuracy, reliability_bar(each))


def reliability_bar(each: Bin) -> str:
    """A bar as long as the accuracy, with a mark at the confidence."""
    end, mark = round(each.accuracy * _BAR), min(round(each.confidence * _BAR), _BAR - 1)
    line = ["─" if index < end else "·" for index in range(_BAR)]
    line[mark] = "│"
    return "".join(line)
