"""Whether a model is right as often as it says: confidence beside accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lightbert.errors import InputError


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
        raise InputError(f"bins = {bins} leaves nowhere to put a prediction; give at least 1")
    if not len(confidences) or len(confidences) != len(right):
        raise InputError(f"{len(confidences):,} confidences for {len(right):,} judgements; give at least one of each")
    p, ok = np.asarray(confidences, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise InputError("a confidence is not between 0 and 1; give probabilities, not logits")
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
