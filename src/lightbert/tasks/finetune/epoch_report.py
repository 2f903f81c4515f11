"""One line per evaluation of a fine-tuning run: the loss, the dev metric and its baseline, and a warning if needed."""

import sys
from collections.abc import Mapping, Sequence

from lightbert.tasks.finetune.dataset import TaskData
from lightbert.tasks.finetune.words import predict_by_words
from lightbert.tasks.kinds.classify import Labels
from lightbert.tasks.kinds.kind import Prediction


class EpochReport:
    """Prints a line to stderr for each evaluation.

    metric: the metric to print.
    steps_per_epoch, steps: the steps of an epoch and of the run; `steps` is 0 if only the time is limited.
    sorts: whether batches have rows of similar length, which can be the reason why one label is always predicted.
    """

    def __init__(self, data: TaskData, metric: str, *, steps_per_epoch: int, steps: int, sorts: bool) -> None:
        self._remedies = f"{'sort_over=1, ' if sorts else ''}another lr= or another seed="
        self._metric, self._steps_per_epoch, self._steps = metric, steps_per_epoch, steps
        self._kind = data.task.kind
        self._baseline = baseline_metrics(data)
        self._only_labels: dict[str, str] = {}

    def check(self, split: str, predictions: Sequence[Prediction]) -> None:
        """Remember whether all predictions for a split have the same label."""
        self._only_labels[split] = self._kind.only_label(predictions) if len(predictions) > 1 else ""

    def print(self, step: int, loss: float, metrics: Mapping[str, float]) -> None:
        """Print the training loss since the last evaluation, and the metric."""
        line = f"epoch {self._epoch(step)}: loss {loss:.4f}"
        if self._metric in metrics:
            line += f", dev {self._metric} {metrics[self._metric]:.4f}"
        if self._metric in self._baseline:
            line += f" (baseline {self._baseline[self._metric]:.4f})"
        print(line, file=sys.stderr, flush=True)
        for split, label in self._only_labels.items():
            if label and metrics.get("accuracy", 0.0) < 1:
                print(
                    f"warning: all predictions for {split} are {label!r}; if this doesn't change, train for more "
                    f"epochs, or try {self._remedies}",
                    file=sys.stderr,
                    flush=True,
                )

    def _epoch(self, step: int) -> str:
        done = f"{step / self._steps_per_epoch:.4g}"
        return f"{done} of {self._steps / self._steps_per_epoch:.4g}" if self._steps else done


def baseline_metrics(data: TaskData) -> dict[str, float]:
    """The metrics on dev of predictions that ignore the texts; empty if the kind of task has no such baseline."""
    if "dev" not in data.dev:
        return {}
    kind, (examples, _) = data.task.kind, data.dev["dev"]
    predictions = kind.baseline(data.train, examples)
    return kind.metrics(examples, predictions) if predictions else {}


def words_metrics(data: TaskData) -> dict[str, float]:
    """The metrics on dev of a linear model of words; empty if there is none for the kind of task."""
    if "dev" not in data.dev:
        return {}
    kind, (examples, _) = data.task.kind, data.dev["dev"]
    try:
        predictions = predict_by_words(kind, data.examples, examples)
    except ValueError as error:
        # The trained model must not be lost because texts have no words that occur twice.
        print(f"words are not compared: {error}", file=sys.stderr)
        return {}
    if isinstance(kind, Labels) and predictions:
        predictions = kind.tune(examples, predictions).decide(predictions)
    return kind.metrics(examples, predictions) if predictions else {}
