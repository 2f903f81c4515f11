"""Choose the method that learns labelled texts best: the linear ones first, then fine-tuning if there is time."""

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightbert.errors import InputError
from lightbert.interop.families import FAMILIES
from lightbert.models import Model
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.finetune import defaults
from lightbert.tasks.finetune.contrast import MAX_TEXTS, MAX_TEXTS_PER_LABEL
from lightbert.tasks.finetune.dataset import TaskData
from lightbert.tasks.finetune.methods import (
    BACKWARD,
    ContrastMethod,
    Method,
    Score,
    Texts,
    add_words,
    majority,
    methods_for,
    soften,
    standard_error,
    supports,
    texts_per_second,
)
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.tasks.finetune.results import Result
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.kind import Prediction
from lightbert.train.checkpoint import rank_key

_MINUTES = 5.0
_MIN_HELD_OUT = 20
"""Fine-tuning is tried if at least this many texts are held out."""
_PREFERRED = ("contrast", "both")
"""Of methods whose scores are within the error, the first of these is kept: on test, it is better for most texts."""

Predict = Callable[[TaskData, Model], list[Prediction]]
"""Predicts the development part."""


class Comparison:
    """The linear methods of a run, validated, and the best of them, trained.

    predict: predicts the development part with a model.
    """

    def __init__(
        self, recipe: FinetuneRecipe, model: Model, data: TaskData, *, predict: Predict, verbose: bool
    ) -> None:
        self._recipe, self._data, self._model, self._predict = recipe, data, model, predict
        self._verbose = verbose
        self.minutes = recipe.max_minutes or _MINUTES
        kind, metric = data.task.kind, recipe.metric or data.task.metric
        parts = [(data.examples, data.train)]
        held_out = isinstance(recipe.data, Files) and not recipe.data.dev
        if held_out and "dev" in data.dev:
            parts.append(data.dev["dev"])
        self.texts = Texts.of(kind, metric, parts, recipe.seed)
        self.scores = {"majority": majority(self.texts)}
        depth = recipe.change.get("depth", len(model.blocks))
        methods = methods_for(self.texts, model, depth, recipe.seed)
        if recipe.method != "auto":
            methods = [method for method in methods if method.name == recipe.method]
        if not methods:
            raise InputError(
                f"method=contrast requires at most {MAX_TEXTS} texts with one label, two or more for each label and at "
                f"most {MAX_TEXTS_PER_LABEL} on average, got {len(self.texts.examples):,} texts; set method=both"
            )
        self.methods: dict[str, Method] = {}
        for method in methods:
            if not isinstance(method, ContrastMethod) or self._has_time_for(method):
                self._add(method)
        best = max(self.methods, key=lambda name: rank_key(metric, self.scores[name].score))
        for name in _PREFERRED:
            if (
                name in self.methods
                and abs(self.scores[best].score - self.scores[name].score) <= self.scores[name].error
            ):
                best = name
                break
        self.method = self.methods[best]

    def _has_time_for(self, method: ContrastMethod) -> bool:
        if "vectors" not in self.scores:
            return True
        minutes = method.minutes(self.scores["vectors"].rate)
        if minutes > self.minutes and self._verbose:
            print(f"contrast was not tried: it would take about {minutes:.1f} minutes", file=sys.stderr, flush=True)
        return minutes <= self.minutes

    def _add(self, method: Method) -> None:
        start = time.perf_counter()
        score = method.score(method.train(self._recipe.seed), time.perf_counter() - start)
        self.methods[method.name] = method
        self._print(replace(score, seconds=time.perf_counter() - start))

    def _print(self, score: Score) -> None:
        self.scores[score.method] = score
        if self._verbose:
            text = f"{score.method}: {self.texts.metric} {score.score:.4f} ± {score.error:.4f}"
            print(f"{text}, {score.seconds:.1f} s", file=sys.stderr, flush=True)

    def tries_finetuning(self, device: torch.device, seconds: float) -> bool:
        """Whether fine-tuning fits into the time; otherwise say why it isn't tried.

        seconds: what has been used.
        """
        if self._recipe.method != "auto":
            return False
        count = len(self._data.dev["dev"][0]) if "dev" in self._data.dev else 0
        reason = ""
        if count < _MIN_HELD_OUT:
            reason = f"it requires {_MIN_HELD_OUT} held-out texts, got {count}"
        else:
            wanted, left = self._minutes_of_finetuning(), self.minutes - seconds / 60
            if device.type == "cpu" and wanted > left:
                reason = f"it would take about {wanted:.1f} minutes; set max_minutes={wanted + seconds / 60 + 1:.0f}"
        if reason and self._verbose:
            print(f"fine-tuning was not tried: {reason}", file=sys.stderr, flush=True)
        return not reason

    def _minutes_of_finetuning(self) -> float:
        """Estimate the time of fine-tuning from the rate of predictions."""
        train, model = self._data.train, self._model
        facts = defaults.Facts(
            self._data.task.kind.name, False, len(train), float(train.lengths.mean()), len(model.blocks), model.width
        )
        settings = defaults.settings_for(facts)
        rate = self.scores["vectors"].rate * self.methods["vectors"].depth / settings["change.depth"]  # type: ignore[attr-defined]
        return float(BACKWARD * settings["epochs"] * len(train) / max(rate, 1e-9) / 60)

    def trained(self) -> tuple[Model, Result]:
        """The best linear model, trained on all texts, and the result of its cross-validation."""
        model, result = self.describe(self.method.train(self._recipe.seed)), self.method.validated
        return model, self._result(Result(result.metrics, self.texts.metric, 0, -1, self.scores[self.method.name].rate))

    def decide(self, model: Model, data: TaskData, result: Result, seconds: float) -> tuple[Model, Result]:
        """Choose between the best linear method and a fine-tuned model, also with words added, on the development part.

        Fine-tuning must be ahead by two standard errors of the difference: the same part chose its best epoch.

        data: with the kind of task of the fine-tuned model, which has its threshold.
        """
        recipe, texts = self._recipe, self.texts
        train = np.flatnonzero(texts.sources == 0)
        candidates = {"finetune": model}
        if "words" in self.methods:
            words = self.methods["words"].train(recipe.seed, train)
            candidates["finetune + words"] = add_words(model, data.task.kind, words)
        examples = data.dev["dev"][0]
        known = self._predict(self._with_kind(data), self.describe(self.method.train(recipe.seed, train)))
        ahead, reference = [self.method.name], self.scores[self.method.name]
        predictions = {name: self._predict(data, candidate) for name, candidate in candidates.items()}
        for name, candidate in candidates.items():
            difference, error = _difference(data, texts.metric, examples, predictions[name], known)
            score, spread = reference.score + difference, float(np.hypot(reference.error, error))
            self._print(Score(name, score, spread, seconds, texts_per_second(candidate, texts)))
            if rank_key(texts.metric, difference) > 2 * error:
                ahead.append(name)
        best = max(ahead, key=lambda name: rank_key(texts.metric, self.scores[name].score))
        if best in self.methods:
            return self.trained()
        chosen = candidates[best]
        if isinstance(data.task.kind, Classify):
            soften(chosen, data.task.kind, examples, predictions[best])
        chosen.task, chosen.labels, chosen.tokenizer = model.task, model.labels, model.tokenizer
        return chosen, self._result(result, best)

    def _with_kind(self, data: TaskData) -> TaskData:
        return replace(data, task=replace(data.task, kind=self.method.validated.kind))

    def describe(self, model: Model) -> Model:
        """Set what a trained linear model was trained for."""
        data = self._data
        model.task = {
            **self.method.validated.kind.description(),
            "task": data.task.name,
            "length": data.length,
            "pairs": False,
            **({"data": dict(data.task.reading)} if data.task.reading else {}),
        }
        return model

    def _result(self, result: Result, method: str = "") -> Result:
        baseline = {self.texts.metric: self.scores["majority"].score}
        table = {
            name: {key: value for key, value in asdict(score).items() if key != "method"}
            for name, score in self.scores.items()
        }
        return replace(
            result,
            baseline=result.baseline or baseline,
            skipped=self._data.skipped,
            words={},
            method=method or self.method.name,
            methods=table,
        )


def compares(recipe: FinetuneRecipe, model: Model, data: TaskData) -> bool:
    """Whether the methods of a recipe are compared; an InputError if a fixed one can't be used."""
    kind = data.task.kind
    if recipe.method in ("words", "vectors", "both", "contrast"):
        if not supports(kind, data.train):
            raise InputError(
                f"method={recipe.method} requires single texts with labels or numbers, got "
                f"{'pairs' if kind.head in ('classify', 'regress') else kind.name}; set method=finetune"
            )
        return True
    imported = model.origin in FAMILIES and model.pooling is None
    return recipe.compares and supports(kind, data.train) and not imported


def may_resume(out: Path) -> bool:
    """Whether a run has been fine-tuning."""
    return any((out / "checkpoints").glob("step-*"))


def _difference(
    data: TaskData, metric: str, examples: Any, predictions: list[Prediction], others: list[Prediction]
) -> tuple[float, float]:
    """The difference of a metric between two predictions of the same texts, and its standard error by the bootstrap."""
    kind = data.task.kind

    def measured(rows: Any) -> float:
        chosen = [examples[row] for row in rows]
        first, second = ([each[row] for row in rows] for each in (predictions, others))
        return kind.metrics(chosen, first)[metric] - kind.metrics(chosen, second)[metric]

    return measured(range(len(examples))), standard_error(measured, len(examples))
