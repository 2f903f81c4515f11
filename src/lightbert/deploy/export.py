"""From a model to a folder for another runtime: written, verified, then published under its name."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lightbert.deploy.description import EXPORTED_FOLDER, exported_config
from lightbert.deploy.onnx.lowering import Int8, lower
from lightbert.deploy.onnx.model import graph_of
from lightbert.deploy.quantization import Mode, Quantized, quantize
from lightbert.deploy.verification import Batch, Comparison, Compute, batches, compare, eager, outputs_of
from lightbert.errors import InputError, unknown
from lightbert.files import folder_atomic, write_atomic
from lightbert.models import Model
from lightbert.models.pooling import write_pooling
from lightbert.models.tokenizer import write_tokenizer
from lightbert.nn.encoder import Encoder
from lightbert.nn.inference import Inference
from lightbert.tasks.predict.exported import FILE, STATES
from lightbert.tasks.predict.forward import Runtime
from lightbert.tasks.predict.model_kind import kind_of_model
from lightbert.tasks.predict.onnx_runtime import OnnxRuntime

ERROR = 1e-3
"""The largest error of a float32 file, relative to the largest output; larger ones are not rounding."""
MAX_LOSS = 0.5
"""The largest loss of an int8 file in points of the main metric, unless a larger one is allowed."""

PER_TOKEN = (STATES, "mlm", "rtd", "tokens", "span")
"""The heads with outputs for each token."""

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


def export_onnx(
    model: Model,
    out: str | Path,
    *,
    head: str = "",
    int8: Mode | None = None,
    calibration: Sequence[Batch] = (),
    measure: Measure | None = None,
    max_loss: float = MAX_LOSS,
) -> Export:
    """Write a folder with model.onnx, config.json and the tokenizer; it appears once the file is verified.

    head: the head to export; "" = that of the model's task, or "states" if it has none. "states" exports the hidden
    states.
    int8: quantize the weights, and the inputs of layers by their own range ("dynamic") or a calibrated one ("static").
    calibration: batches of the user's texts, on which ranges and errors are measured; English sentences if empty.
    measure: computes the metrics of the model and of the file; a loss of more than `max_loss` points is an error.
    """
    model = model.eval().requires_grad_(False).to("cpu", torch.float32)
    head, precision = choose_head(model, head), "float32" if int8 is None else f"int8 {int8}"
    inputs, per_token = list(batches(model)), head in PER_TOKEN
    with folder_atomic(out, EXPORTED_FOLDER) as folder:
        expected = outputs_of(reference(model, head), inputs)
        start = time.perf_counter()
        graph, outputs = graph_of(model, head)
        quantized = None
        if int8 is None:
            content = lower(graph, outputs)
        else:
            real = [number for number, batch in enumerate(inputs) if batch.real] or list(range(len(inputs)))
            chosen, wanted = [inputs[number] for number in real], [expected[number] for number in real]
            quantized = quantize(
                graph,
                outputs,
                int8,
                calibration or chosen,
                lambda session: compare(chosen, wanted, outputs_of(session, chosen), per_token=per_token),
            )
            content = quantized.content
        (folder / FILE).write_bytes(content)
        seconds = time.perf_counter() - start
        runtime = OnnxRuntime(folder / FILE, head, reads_padding=model.released_padding)
        comparisons = compare(inputs, expected, outputs_of(runtime, inputs), per_token=per_token)
        if int8 is None:
            check_errors(comparisons, ERROR)
        metric = None if measure is None else _change(measure, runtime, max_loss)
        write_description(model, head, precision, folder)
        size = (folder / FILE).stat().st_size
    return Export(Path(out), FILE, head, precision, size, seconds, tuple(comparisons), quantized, metric)


def export_content(encoder: Encoder, *, int8: bool = False) -> bytes:
    """The content of an ONNX file of an encoder's states, unverified and without calibration, for benchmarks."""
    graph, outputs = graph_of(encoder, STATES)
    return lower(graph, outputs, Int8() if int8 else None)


def _change(measure: Measure, runtime: Runtime, max_loss: float) -> MetricChange:
    before, after = measure(None), measure(runtime)
    name = next(iter(before))
    change = MetricChange(name, before[name], after[name])
    if not change.loss <= max_loss:
        raise InputError(
            f"the loss of {name} must be <= {max_loss:g} points, got {change.loss:.2f} ({before[name]:.4f} to "
            f"{after[name]:.4f}); nothing was written. Allow more with --max-loss, or export without --int8"
        )
    return change


def choose_head(model: Model, head: str) -> str:
    """Check the name of a head, or choose it by the model's task."""
    if head:
        if head != STATES and head not in model.heads:
            raise unknown("head", head, [*model.heads, STATES])
        return head
    try:
        return kind_of_model(model).head
    except InputError:
        return STATES


def reference(model: Model, head: str) -> Compute:
    """The outputs of the model itself."""
    if head == STATES:
        return eager(lambda *inputs: (model(*inputs),))
    if head == "choice":
        return eager(lambda *inputs: (model.heads[head](model(*inputs), 1),))
    return eager(Inference(model, head))


def check_errors(comparisons: Sequence[Comparison], bound: float) -> None:
    """Raise an InputError if an error exceeds the bound, or isn't a number."""
    for each in comparisons:
        if not each.error <= bound:
            raise InputError(
                f"the exported file differs from the model: the error for {each.inputs} must be <= {bound:g}, got "
                f"{each.error:.2g}; nothing was written. Please report this model's config"
            )


def write_description(model: Model, head: str, precision: str, folder: Path) -> None:
    """Write config.json, the tokenizer, and for a sentence encoder the files of its pooling."""
    write_atomic(folder / "config.json", json.dumps(exported_config(model, head, precision), indent=2) + "\n")
    if model.tokenizer is not None:
        write_tokenizer(model.tokenizer, folder, model.positions)
    if model.pooling is not None and head == STATES:
        write_pooling(model.pooling, folder, model.width)
