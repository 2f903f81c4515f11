"""Export a model: a file is written, compared with its model and measured before its folder appears."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.deploy.quantization import COSINE, Mode, Quantized
from lightbert.deploy.targets import TARGETS
from lightbert.deploy.verification import Batch, Comparison, Source, sentence_pooling
from lightbert.errors import InputError, unknown
from lightbert.files import FolderKind, folder_atomic, write_atomic
from lightbert.interop.heads import class_suffix, write_heads, write_problem
from lightbert.interop.huggingface import their_config
from lightbert.models import Model, folder
from lightbert.models.folder import MODEL_FILES, config_of, write_tokenizer
from lightbert.models.sentence_files import write_sentence_files
from lightbert.nn.pooling_settings import PROJECTION
from lightbert.nn.quantization import simulated_copy
from lightbert.tasks.predict.exported import FORMAT, KEY, RUNTIMES, STATES, runtime_of
from lightbert.tasks.predict.predictor import kind_of_model
from lightbert.tasks.predict.runtime import Runtime

if TYPE_CHECKING:
    from rich.console import RenderableType

ERROR = 1e-3
"""The largest error of a float32 file, relative to the largest output; larger ones are not rounding."""
MAX_LOSS = 0.5
"""The largest loss of an int8 file in points of the main metric, unless a larger one is allowed."""

EXPORTED_FOLDER = FolderKind(
    "an exported model that lightbert wrote",
    (*(f"model{suffix}" for suffix in RUNTIMES), *MODEL_FILES),
    lambda folder: KEY in config_of(folder),
)

Measure = Callable[[Runtime | None], dict[str, float]]
"""Computes the metrics of a runtime, or of the model itself (None); the first one is the main metric."""


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
        content = asdict(self) | {"folder": str(self.folder)}
        metric, quantized = content.pop("metric"), content.pop("quantized")
        metrics = {
            "error": max(comparison.error for comparison in self.comparisons),
            "cosine": min(comparison.cosine for comparison in self.comparisons),
        }
        if metric is not None:
            metrics |= {f"{metric['name']}_{when}": metric[when] for when in ("before", "after")}
        if quantized is not None:
            content |= {"layers": quantized["layers"], "float_layers": quantized["floats"]}
        return content | {"metrics": metrics}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        table = Table("compared with the model", "rows", "tokens", "largest error", "cosine", "same predictions")
        for row in self.comparisons:
            figures = (f"{row.error:.1e}", f"{row.cosine:.6f}", f"{row.same:.1%}")
            table.add_row(row.inputs, str(row.rows), str(row.tokens), *figures)
        parts: list[RenderableType] = [table]
        if self.quantized is not None and self.quantized.floats:
            floats = Table("stays in float32", "error in int8", "range of its input")
            for layer in self.quantized.floats:
                floats.add_row(layer.name, f"{layer.error:.1%}", f"{layer.low:.3g} to {layer.high:.3g}")
            count, layers = len(self.quantized.floats), self.quantized.layers
            parts += [floats, f"{count} of {layers} linear layers stay in float32"]
        if self.metric is not None:
            name, before, after = self.metric.name, self.metric.before, self.metric.after
            parts.append(f"{name}: {before:.4f} before, {after:.4f} after ({100 * (after - before):+.2f} points)")
        size = f"{self.bytes / 1e6:.1f} MB, {self.precision}, written in {self.seconds:.1f} s"
        return Group(*parts, f"{self.folder / self.file}: head {self.head}, {size}")


def export(
    model: Model,
    out: str | Path,
    *,
    to: str = "onnx",
    head: str = "",
    int8: Mode | None = None,
    calibration: Sequence[Batch] = (),
    measure: Measure | None = None,
    max_loss: float = MAX_LOSS,
) -> Export:
    """Write a folder with the file, config.json and the tokenizer; it appears once the file is verified.

    to: a target: onnx, pt2 (for PyTorch without lightbert) or executorch.
    head: the head to export; "" = that of the model's task, or "vector" for a sentence encoder, whose vectors the file
    computes with their pooling, projection and normalization, or "states", the hidden states.
    int8: quantize the weights, and the inputs of layers by their own range ("dynamic"), a calibrated one ("static"), or
    the one that quantization-aware training has learned ("qat").
    calibration: batches of the user's texts, on which ranges and errors are measured; English sentences if empty.
    measure: computes the metric of a task; a loss of more than `max_loss` points is an error.
    """
    if to not in TARGETS:
        raise unknown("target", to, TARGETS)
    target = TARGETS[to]
    target.check(int8)
    if int8 == "qat" and not model.ranges:
        raise InputError(
            "--int8 qat requires a model that was fine-tuned with quantization_aware=true; use --int8 dynamic, or "
            "--int8 static with --data"
        )
    trained = simulated_copy(model, model.ranges) if int8 == "qat" else None
    source = Source(model, choose_head(model, head), target.shortest, trained)
    precision, file = "float32" if int8 is None else f"int8 {int8}", f"model{target.suffix}"
    with folder_atomic(out, EXPORTED_FOLDER) as new:
        path, start = new / file, time.perf_counter()
        quantized = target.write(source, path, int8, calibration)
        seconds = time.perf_counter() - start
        runtime = runtime_of(path, source.head, reads_padding=source.model.released_padding)
        comparisons = source.compare(runtime, source.inputs)
        if quantized is None:
            check_errors(comparisons, ERROR)
        else:
            texts = source.texts
            check_cosines([row for batch, row in zip(source.inputs, comparisons, strict=True) if batch in texts])
        metric = None if measure is None else _metric_change(measure, runtime, max_loss)
        config = exported_config(source.model, source.head, precision)
        write_atomic(new / "config.json", json.dumps(config, indent=2) + "\n")
        if model.tokenizer is not None:
            write_tokenizer(model.tokenizer, new, model.positions)
        if source.head == STATES:
            write_sentence_files(model, new)
        size = path.stat().st_size
    return Export(Path(out), file, source.head, precision, size, seconds, tuple(comparisons), quantized, metric)


def choose_head(model: Model, head: str) -> str:
    """Check the name of a head, or choose it by the model's task or its pooling."""
    if head:
        heads = {*model.heads, STATES, *([PROJECTION] if model.pooling is not None else ())}
        if head not in heads:
            raise unknown("head", head, sorted(heads))
        return head
    try:
        return kind_of_model(model).head
    except InputError:
        return STATES if model.pooling is None else PROJECTION


def check_errors(comparisons: Sequence[Comparison], bound: float) -> None:
    """Raise an InputError if an error exceeds the bound, or isn't a number."""
    for comparison in comparisons:
        if not comparison.error <= bound:
            raise InputError(
                f"the exported file differs from the model: the error for {comparison.inputs} must be <= {bound:g}, "
                f"got {comparison.error:.2g}; nothing was written. Please report this model's config"
            )


def check_cosines(comparisons: Sequence[Comparison]) -> None:
    """Raise an InputError if the outputs of an int8 file point elsewhere than those of the model."""
    lowest = min(comparison.cosine for comparison in comparisons)
    if not lowest >= COSINE:
        raise InputError(
            f"the cosine between the outputs of the model and of the int8 file must be >= {COSINE}, got {lowest:.3f}; "
            "nothing was written. Export without --int8"
        )


def _metric_change(measure: Measure, runtime: Runtime, max_loss: float) -> MetricChange:
    before, after = measure(None), measure(runtime)
    name = next(iter(before))
    change = MetricChange(name, before[name], after[name])
    if not change.loss <= max_loss:
        raise InputError(
            f"the loss of {name} must be <= {max_loss:g} points, got {change.loss:.2f} ({before[name]:.4f} to "
            f"{after[name]:.4f}); nothing was written. Allow more with --max-loss, or export without --int8"
        )
    return change


def exported_config(model: Model, head: str, precision: str) -> dict[str, Any]:
    """The config.json: transformers' keys where it has the family, and our description in one key.

    Runtimes that read Hugging Face folders, such as transformers.js, find the architecture and the labels. The other
    families get the model_type "lightbert".
    """
    pooling = sentence_pooling(model, head)
    whole = head == STATES or (pooling is not None and not pooling.projection)
    settings = {} if whole else {head: model.head_settings[head]}
    description = folder.description(Model(model, replace(model.metadata, head_settings=settings)))
    return {
        **_transformers_keys(model, head),
        **write_heads(settings, model.labels),
        KEY: {
            "format": FORMAT,
            "head": head,
            "precision": precision,
            "width": model.width,
            "positions": model.positions,
            "reads_padding": model.released_padding,
            "family": description["family"],
            "config": description["config"],
            "heads": settings,
            "labels": list(model.labels),
            "task": model.task,
            "pooling": {} if model.pooling is None else asdict(model.pooling),
            "normalized": pooling is not None and pooling.normalize,
        },
    }


def _transformers_keys(model: Model, head: str) -> dict[str, Any]:
    """The keys of the model without heads: an exported graph may contain heads that transformers' classes don't."""
    try:
        config = their_config(Model(model, replace(model.metadata, head_settings={}, labels=(), task={})))
    except InputError:
        return {"model_type": "lightbert"}
    (architecture,) = config["architectures"]
    problem = write_problem(model.head_settings, model.task)
    return {
        **config,
        "architectures": [architecture.removesuffix("Model") + class_suffix(head)],
        **({"problem_type": problem} if problem else {}),
    }
