"""The result of a fine-tuning run."""

from dataclasses import dataclass, field
from math import nan

from lightbert.train.best import rank_key


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
    words: dict[str, float] = field(default_factory=dict)
    """On the development set, for a linear model of words; empty if it wasn't trained."""
    skipped: dict[str, int] = field(default_factory=dict)
    """The number of bad rows of each split that were skipped."""

    @property
    def score(self) -> float:
        """The value of the metric that ranks runs."""
        return self.metrics[self.metric]

    def comparison(self) -> str:
        """Compare the score with that of words alone, and of answers that ignore the texts; "" if there is neither."""
        if self.metric not in self.metrics:
            return ""
        baseline, words = self.baseline.get(self.metric), self.words.get(self.metric)
        score, best = rank_key(self.metric, self.score), rank_key(self.metric, nan if words is None else words)
        if baseline is not None and max(score, best) <= rank_key(self.metric, baseline):
            return (
                f"nothing was learned: {self.metric} on dev is {self.score:.4f}, and {baseline:.4f} for predictions "
                "that ignore the texts; check the labels and the columns, or add labelled texts"
            )
        if words is None:
            return ""
        if best > score:
            return (
                f"words are better: {self.metric} on dev is {words:.4f} for a linear model of words (TF-IDF), and "
                f"{self.score:.4f} for this model; use the linear model, or add labelled texts"
            )
        return f"{self.metric} on dev: words alone {words:.4f}, this model {self.score:.4f}"
