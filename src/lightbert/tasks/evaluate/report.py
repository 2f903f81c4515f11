"""What an evaluation tells: to a machine, on a page, in a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lightbert.tasks.evaluate.findings import Finding, Table
from lightbert.tasks.kinds.kind import Prediction

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Evaluation:
    """The metrics of one split, what else was found, and the predictions themselves."""

    task: str
    split: str
    metrics: dict[str, float]
    """Empty when the answers of the split are unknown."""
    examples: Sequence[Any] = field(repr=False)
    predictions: Sequence[Prediction] = field(repr=False)
    findings: Sequence[Finding] = field(default=(), repr=False)
    tokens: int = 0
    cut: int = 0
    """How many rows lost tokens because they were too long."""
    seconds: float = 0.0
    """Of the model's forward passes."""
    model: str = ""
    data: str = ""
    """What the report calls the model and the data."""

    def counts(self) -> dict[str, Any]:
        """How much there was, and how long it took."""
        return {
            "examples": len(self.examples),
            "tokens": self.tokens,
            "cut": self.cut,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens / self.seconds if self.seconds else 0.0,
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        asked = {"model": self.model, "data": self.data, "task": self.task, "split": self.split}
        return {
            **asked,
            "metrics": self.metrics,
            **self.counts(),
            **{finding.key: finding.value for finding in self.findings},
        }

    def to_markdown(self) -> str:
        """The report as a page."""
        title = f"# {self.task}, {self.split}" + (f": {self.model}" if self.model else "")
        title += f" on {self.data}" if self.data else ""
        return "\n\n".join([title, *(table.to_markdown() for table in self.tables())]) + "\n"

    def __rich__(self) -> "RenderableType":
        from rich.console import Group

        return Group(*self.tables())

    def tables(self) -> list[Table]:
        """Metrics first, then every finding, then what it took."""
        metrics = Table("Metrics", ("metric", "value"), [(name, float(value)) for name, value in self.metrics.items()])
        counted = self.counts()
        counted["tokens_per_second"] = round(counted["tokens_per_second"])
        shown = [(name.replace("_", " "), value) for name, value in counted.items()]
        counts = Table("Counts", ("count", "value"), shown)
        return [
            *([metrics] if self.metrics else []),
            *(table for each in self.findings for table in each.tables),
            counts,
        ]
