"""Precision, recall and F1 of one label."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from lightbert.tasks.kinds.findings.finding import Finding, Table


@dataclass(frozen=True)
class Rates:
    """How often a label was right when it was said, and said when it was right; 0 where there is nothing to share."""

    precision: float
    recall: float
    f1: float
    said: int
    true: int
    right: int

    @classmethod
    def of(cls, *, right: int, said: int, true: int) -> "Rates":
        """Count: said is how often the label was predicted, true how often it holds, right how often both."""
        return cls(
            precision=right / said if said else 0.0,
            recall=right / true if true else 0.0,
            f1=2 * right / (said + true) if said + true else 0.0,
            said=said,
            true=true,
            right=right,
        )


def rates_finding(rates: Mapping[str, Rates], *, key: str = "labels", title: str = "Labels") -> Finding:
    """The rates of every label, one row each."""
    rows = [(name, each.precision, each.recall, each.f1, each.said, each.true) for name, each in rates.items()]
    columns = (key.removesuffix("s"), "precision", "recall", "F1", "predicted", "true")
    return Finding(key, {name: asdict(each) for name, each in rates.items()}, (Table(title, columns, rows),))
