"""Precision, recall and F1 of one label."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from lightbert.tasks.kinds.findings.finding import Finding, Table


@dataclass(frozen=True)
class Rates:
    """Precision, recall and F1 of one label, 0 where undefined, and the counts behind them."""

    precision: float
    recall: float
    f1: float
    said: int
    true: int
    right: int

    @classmethod
    def of(cls, *, right: int, said: int, true: int) -> "Rates":
        """Compute from counts: `said` predictions of the label, `true` occurrences, `right` true positives."""
        return cls(
            precision=right / said if said else 0.0,
            recall=right / true if true else 0.0,
            f1=2 * right / (said + true) if said + true else 0.0,
            said=said,
            true=true,
            right=right,
        )


def rates_finding(rates: Mapping[str, Rates], *, key: str = "labels", title: str = "Labels") -> Finding:
    """Report the rates of every label, one row each."""
    rows = [(name, each.precision, each.recall, each.f1, each.said, each.true) for name, each in rates.items()]
    columns = (key.removesuffix("s"), "precision", "recall", "F1", "predicted", "true")
    return Finding(key, {name: asdict(each) for name, each in rates.items()}, (Table(title, columns, rows),))
