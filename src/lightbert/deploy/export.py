"""From a model to a folder for another runtime: written, verified, then published under its name."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lightbert.deploy.description import exported_config
from lightbert.deploy.verification import Comparison, Compute, batches, compare, eager
from lightbert.errors import InputError, unknown
from lightbert.files import folder_atomic, write_atomic
from lightbert.models import Model
from lightbert.models.tokenizer import write_tokenizer
from lightbert.nn.inference import Inference
from lightbert.tasks.predict.exported import FILE, STATES
from lightbert.tasks.predict.model_kind import kind_of_model
from lightbert.tasks.predict.onnx_runtime import OnnxRuntime

ERROR = 1e-3
"""The largest error of a float32 file, relative to the largest output; larger ones are not rounding."""


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

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "folder": str(self.folder),
            "file": self.file,
            "head": self.head,
            "precision": self.precision,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "metrics": {"error": max(each.error for each in self.comparisons)},
            "comparisons": [each.to_json() for each in self.comparisons],
        }


def export_onnx(model: Model, out: str | Path, *, head: str = "", texts: Sequence[str] = ()) -> Export:
    """Write a folder with model.onnx, config.json and the tokenizer; it appears once the file is verified.

    head: the head to export; "" = that of the model's task, or "states" if it has none. "states" exports the hidden
    states.
    texts: what is compared; English sentences if empty.
    """
    model = model.eval().requires_grad_(False).to("cpu", torch.float32)
    head = choose_head(model, head)
    with folder_atomic(out) as folder:
        start = time.perf_counter()
        write_onnx(model, head, folder / FILE)
        seconds = time.perf_counter() - start
        runtime = OnnxRuntime(folder / FILE, head)
        comparisons = compare(reference(model, head), runtime, batches(model, texts))
        check_errors(comparisons, ERROR)
        write_description(model, head, "float32", folder)
        size = (folder / FILE).stat().st_size
    return Export(Path(out), FILE, head, "float32", size, seconds, tuple(comparisons))


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


def write_onnx(model: Model, head: str, path: Path) -> None:
    """Write a model in float32."""
    try:
        import onnx

        from lightbert.deploy.onnx.lowering import lower
    except ImportError:
        raise InputError("export to ONNX requires onnx; install it with: pip install 'lightbert[export]'") from None
    from lightbert.deploy.onnx.model import graph_of

    graph, outputs = graph_of(model, head)
    onnx.save_model(lower(graph, outputs), path)


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
    """Write config.json and the tokenizer."""
    write_atomic(folder / "config.json", json.dumps(exported_config(model, head, precision), indent=2) + "\n")
    if model.tokenizer is not None:
        write_tokenizer(model.tokenizer, folder, model.positions)
