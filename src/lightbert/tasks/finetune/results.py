"""The result of a run, and statistics of runs that differ only in their seed; GLUE averages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from statistics import fmean, median, stdev
from typing import Any

from lightbert.tasks.datasets.glue_results import MEANS, MISMATCHED, Score
from lightbert.tasks.finetune.plan import PlannedRun
from lightbert.train.checkpoint import rank_key


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
    method: str = "finetune"
    """How the saved model was trained."""
    methods: dict[str, dict[str, float]] = field(default_factory=dict)
    """Method -> score, error, seconds and rate, as of `methods.Score`; empty if only one method was asked for."""

    @property
    def score(self) -> float:
        """The value of the metric that ranks runs."""
        return self.metrics[self.metric]

    def comparison(self) -> str:
        """Compare the score with that of words alone, and of answers that ignore the texts; "" if there is neither."""
        if self.metric not in self.metrics:
            return ""
        if self.methods:
            return self._comparison_of_methods()
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

    def _comparison_of_methods(self) -> str:
        chosen, majority = self.methods[self.method], self.methods["majority"]
        if rank_key(self.metric, chosen["score"]) <= rank_key(self.metric, majority["score"]):
            return (
                f"not better than the majority ({self.metric} {majority['score']:.4f}): these texts or labels "
                "don't say it; check the labels and the columns, or add labelled texts"
            )
        return f"method={self.method}: expected {self.metric} {chosen['score']:.4f} ± {chosen['error']:.4f}"


@dataclass(frozen=True)
class Setting:
    """The runs of one task with the same settings and different seeds."""

    task: str
    settings: str
    runs: tuple[tuple[PlannedRun, Result], ...]

    @property
    def metric(self) -> str:
        """The name of the metric that ranks runs."""
        return self.runs[0][1].metric

    @property
    def best(self) -> tuple[PlannedRun, Result]:
        """The run with the best score; the first one on ties."""
        return max(self.runs, key=lambda run: rank_key(self.metric, run[1].score))

    @property
    def sort_key(self) -> float:
        """The value that ranks settings: the median score, negated if lower is better."""
        return rank_key(self.metric, median(self.values(self.metric)))

    def values(self, metric: str) -> list[float]:
        """The values of a metric, one per run."""
        return [result.metrics[metric] for _, result in self.runs]

    def numbers(self, metric: str) -> dict[str, float]:
        """The median, the mean, the standard error of the mean (0 for one run) and the best value."""
        values = self.values(metric)
        error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
        best = max(values, key=lambda value: rank_key(metric, value))
        return {"median": median(values), "mean": fmean(values), "error": error, "best": best}

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        return {
            "task": self.task,
            "settings": dict(self.runs[0][0].values),
            "metric": self.metric,
            "metrics": {name: self.numbers(name) for name in self.runs[0][1].metrics},
            "runs": [
                {"seed": planned.seed, "out": planned.recipe.out, **vars(result)} for planned, result in self.runs
            ],
        }


def settings_of(runs: Sequence[tuple[PlannedRun, Result]]) -> list[Setting]:
    """Group runs that differ only in their seed, in the order of the plan."""
    groups: dict[tuple[str, str], list[tuple[PlannedRun, Result]]] = {}
    for planned, result in runs:
        groups.setdefault((planned.task, planned.settings), []).append((planned, result))
    return [Setting(task, settings, tuple(members)) for (task, settings), members in groups.items()]


def best_settings(settings: Sequence[Setting]) -> list[Setting]:
    """The setting with the best median for each task."""
    best: dict[str, Setting] = {}
    for each in settings:
        known = best.get(each.task)
        if known is None or each.sort_key > known.sort_key:
            best[each.task] = each
    return list(best.values())


def glue_scores(settings: Sequence[Setting]) -> list[Score]:
    """The papers' GLUE averages, from the medians of each task's best setting."""
    results: dict[str, Mapping[str, float]] = {}
    for each in best_settings(settings):
        medians = {name: each.numbers(name)["median"] for name in each.runs[0][1].metrics}
        results[each.task] = medians
        mismatched = {name: value for name, value in medians.items() if name.startswith("mismatched_")}
        if mismatched:
            results[MISMATCHED] = {name.removeprefix("mismatched_"): value for name, value in mismatched.items()}
    return [mean.of(results) for mean in MEANS]
