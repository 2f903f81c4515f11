"""How good a model is at a task: predictions of a split, judged where the answers are known."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.nn.inference import Inference
from lightbert.progress import progress
from lightbert.tasks.datasets.task import Task
from lightbert.tasks.evaluate.report import Evaluation
from lightbert.tasks.example import Question, Tagged
from lightbert.tasks.kinds.kind import Kind, Prediction
from lightbert.tasks.predict.adoption import encoder_of, kind_of_model
from lightbert.tasks.predict.forward import run
from lightbert.tasks.predict.inputs import refuse_single_texts
from lightbert.train.distributed import resolve_device

# Enough for rows of like length to meet, few enough for a bar to move.
_CHUNK = 2048


def evaluate(
    model: Model,
    task: Task,
    split: str = "dev",
    *,
    batch: int = 0,
    device: str = "auto",
    worst: int = 20,
    labels: Sequence[str] = (),
    name: str = "",
    data: str = "",
) -> Evaluation:
    """Predict a split and judge the predictions where the answers are known.

    Labels go by name, whatever their order in the model is. labels: names for the outputs of a model that has none.
    batch: rows of 128 tokens at once, 0 = as many as suit the device.
    worst: how many of the most wrong examples to keep. name, data: what the report calls the model and the
    data.
    """
    kind = kind_of_model(model, labels, like=task.kind)
    _refuse_kind(kind, task)
    examples = task.examples(split)
    refuse_single_texts(examples, model.task)
    known = _all_known(task, split, examples)
    if known:
        _refuse_labels(kind, task, examples)
    model.to(resolve_device(device))
    encoder, inference = encoder_of(model), Inference(model, kind.head)
    predictions: list[Prediction] = []
    tokens, cut, seconds = 0, 0, 0.0
    with progress("evaluating", total=len(examples), unit="examples") as bar:
        for first in range(0, len(examples), _CHUNK):
            chunk = examples[first : first + _CHUNK]
            features = kind.features(chunk, encoder)
            start = time.perf_counter()
            outputs = run(inference, features, encoder.specials, batch)
            seconds += time.perf_counter() - start
            predictions += kind.predictions(chunk, features, outputs)
            tokens, cut = tokens + len(features.tokens), cut + features.cut
            bar.advance(len(chunk))
    return Evaluation(
        task=task.name,
        split=split,
        metrics=task.kind.metrics(examples, predictions) if known else {},
        examples=examples,
        predictions=predictions,
        findings=kind.findings(examples, predictions, worst) if known else (),
        tokens=tokens,
        cut=cut,
        seconds=seconds,
        model=name,
        data=data,
    )


def is_known(example: Any) -> bool:
    """Whether an example comes with its answer."""
    match example:
        case Tagged():
            return example.tags is not None
        case Question():
            return example.answers is not None
    return example.label is not None


def _all_known(task: Task, split: str, examples: Sequence[Any]) -> bool:
    count = sum(is_known(example) for example in examples)
    if 0 < count < len(examples) and not split.startswith("test"):
        raise InputError(
            f"{len(examples) - count:,} of {len(examples):,} examples of {task.name}, {split}, have no answer to be "
            "judged by: leave them out, or predict them as a test set"
        )
    return count == len(examples) > 0


def _refuse_kind(kind: Kind[Any], task: Task) -> None:
    if type(kind) is not type(task.kind):
        raise InputError(
            f"the model was made for tasks of the kind {kind.name!r}, but {task.name} is of the kind "
            f"{task.kind.name!r}: give a model that was fine-tuned for it"
        )


def _refuse_labels(kind: Kind[Any], task: Task, examples: Sequence[Any]) -> None:
    names = getattr(kind, "labels", None)
    if names is None:
        return
    strange = sorted({label for example in examples for label in _labels(example)} - set(names))
    if strange:
        raise InputError(
            f"{task.name} has the label {strange[0]!r}, the model knows {', '.join(names)}: give a model that was "
            "fine-tuned for this task, or if its labels are only called otherwise, their names in its order"
        )


def _labels(example: Any) -> Iterable[str]:
    if isinstance(example, Tagged):
        return example.tags or ()
    return example.label if isinstance(example.label, tuple) else (str(example.label),)
