"""What an export reports: the folder, the comparison with the model, and the change of the metric."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightbert.deploy.quantization import Quantized
from lightbert.deploy.verification import Comparison


@dataclass(frozen=True)
class MetricChange:
    """The main metric of a task before and after an export, as a fraction of 1."""

    name: str
    before: float
    after: float

    @property
    def loss(self) -> float:
        """The loss in points."""
        return 100 * (self.before - self.after)


@dataclass(frozen=True)
class Export:
    """A published folder, with the comparison of its file and the model."""

    folder: Path
    file: str
    head: str
    precision: str
    bytes: int
    seconds: float
    """The time to write the file, without the verification."""
    comparisons: tuple[Comparison, ...]
    quantized: Quantized | None = None
    metric: MetricChange | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        metrics = {
            "error": max(each.error for each in self.comparisons),
            "cosine": min(each.cosine for each in self.comparisons),
        }
        if self.metric is not None:
            metrics |= {
                f"{self.metric.name}_before": self.metric.before,
                f"{self.metric.name}_after": self.metric.after,
            }
        content = {
            "folder": str(self.folder),
            "file": self.file,
            "head": self.head,
            "precision": self.precision,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "metrics": metrics,
            "comparisons": [each.to_json() for each in self.comparisons],
        }
        if self.quantized is not None:
            content["layers"] = self.quantized.layers
            content["float_layers"] = [each.to_json() for each in self.quantized.floats]
        return content
