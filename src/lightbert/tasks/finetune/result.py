"""The result of a fine-tuning run."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Result:
    """The outcome of a run."""

    metrics: dict[str, float]
    """On the development set, for the weights that are saved."""
    metric: str
    """The name of the metric that ranks runs."""
    step: int
    best_step: int
    """The step of the saved weights; -1 = the last step."""
    rows_per_second: float
    finished: bool = True
    baseline: dict[str, float] = field(default_factory=dict)
    """On the development set, for predictions that ignore the texts, such as the most frequent label."""
    skipped: dict[str, int] = field(default_factory=dict)
    """The number of bad rows of each split that were skipped."""

    @property
    def score(self) -> float:
        """The value of the metric that ranks runs."""
        return self.metrics[self.metric]
