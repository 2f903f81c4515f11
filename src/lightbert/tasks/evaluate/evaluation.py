"""Evaluate a model on a split of a task."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.inference import Inference
from lightbert.progress import progress
from lightbert.tasks.datasets.task import Task
from lightbert.tasks.evaluate.report import Evaluation
from lightbert.tasks.example import TaggedSentence, is_labelled
from lightbert.tasks.kinds.findings import Finding
from lightbert.tasks.kinds.kind import Kind, Prediction
from lightbert.tasks.predict.forward import Runtime, run
from lightbert.tasks.predict.inputs import check_pairs
from lightbert.tasks.predict.model_kind import Described, encoder_of, kind_of_model
from lightbert.tasks.predict.torch_runtime import TorchRuntime
from lightbert.train.distributed import resolve_device

# Large enough to batch rows of similar length, small enough to update the progress bar.
_CHUNK = 2048


def evaluate(
    model: Described,
    task: Task,
    split: str = "dev",
    *,
    batch: int = 0,
    device: str = "auto",
    worst: int = 20,
    labels: Sequence[str] = (),
    name: str = "",
    data: str = "",
    runtime: Runtime | None = None,
) -> Evaluation:
    """Predict a split, and compute metrics and findings if its labels are known.

    Labels are matched by name; their order in the model doesn't matter.
    batch: batch size in rows of 128 tokens; 0 = chosen for the device.
    worst: the number of worst errors to report.
    labels: names for the outputs of a model without label names.
    name, data: the names of the model and the data in the report.
    runtime: the inference backend, such as an exported file of the model; None = the model itself on `device`.
    """
    for setting, value in (("batch", batch), ("worst", worst)):
        if value < 0:
            raise InputError(f"{setting} must be >= 0, got {value}")
    kind = kind_of_model(model, labels, like=task.kind)
    _check_kind(kind, task)
    examples = task.examples(split)
    check_pairs(examples, model.task)
    labelled = _all_labelled(task, split, examples)
    if labelled:
        _check_labels(kind, task, examples)
    encoder = encoder_of(model)
    runtime = runtime or _torch_runtime(model, kind.head, device)
    predictions: list[Prediction] = []
    tokens, cut, seconds = 0, 0, 0.0
    with progress("evaluating", total=len(examples), unit="examples") as bar:
        for first in range(0, len(examples), _CHUNK):
            chunk = examples[first : first + _CHUNK]
            features = kind.features(chunk, encoder)
            start = time.perf_counter()
            outputs = run(runtime, features, encoder.specials, batch)
            seconds += time.perf_counter() - start
            predictions += kind.predictions(chunk, features, outputs)
            tokens, cut = tokens + len(features.tokens), cut + features.cut
            bar.advance(len(chunk))
    return Evaluation(
        task=task.name,
        split=split,
        metrics=task.kind.metrics(examples, predictions) if labelled else {},
        examples=examples,
        predictions=predictions,
        findings=_findings(kind, examples, predictions, worst) if labelled else (),
        tokens=tokens,
        cut=cut,
        skipped=examples.skipped,
        seconds=seconds,
        model=name,
        data=data,
    )


def _findings(kind: Kind[Any], examples: Sequence[Any], predictions: Sequence[Prediction], worst: int) -> list[Finding]:
    """The findings; without tables of the worst errors if none are requested, since an empty one would say "None."."""
    found = kind.findings(examples, predictions, worst)
    return found if worst else [replace(each, tables=()) if each.key == "most_wrong" else each for each in found]


def _torch_runtime(model: Described, head: str, device: str) -> Runtime:
    if not isinstance(model, Model):
        raise InputError("a model that is not a lightbert.models.Model requires a runtime")
    return TorchRuntime(Inference(model.to(resolve_device(device)), head))


def _all_labelled(task: Task, split: str, examples: Sequence[Any]) -> bool:
    count = sum(is_labelled(example) for example in examples)
    if 0 < count < len(examples) and not split.startswith("test"):
        raise InputError(
            f"all examples of {task.name}, {split}, must have labels, {len(examples) - count:,} of {len(examples):,} "
            "have none: remove them, or predict them as a test set"
        )
    return count == len(examples) > 0


def _check_kind(kind: Kind[Any], task: Task) -> None:
    if type(kind) is not type(task.kind):
        raise InputError(
            f"{task.name} requires a model for tasks of kind {task.kind.name!r}, got one for {kind.name!r}: give a "
            "model that was fine-tuned for it"
        )


def _check_labels(kind: Kind[Any], task: Task, examples: Sequence[Any]) -> None:
    names = getattr(kind, "labels", None)
    if names is None:
        return
    unknown = sorted({label for example in examples for label in _labels(example)} - set(names))
    if unknown:
        raise InputError(
            f"labels of {task.name} must be among those of the model, {', '.join(names)}, got {unknown[0]!r}: give a "
            "model that was fine-tuned for this task, or rename the labels of the model with --labels"
        )


def _labels(example: Any) -> Iterable[str]:
    if isinstance(example, TaggedSentence):
        return example.tags or ()
    return example.label if isinstance(example.label, tuple) else (str(example.label),)
