"""Publish an exported file: it is written, compared with its model and measured before its folder appears."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from lightbert.deploy.description import EXPORTED_FOLDER, exported_config
from lightbert.deploy.outcome import Export, MetricChange
from lightbert.deploy.quantization import COSINE, Quantized
from lightbert.deploy.verification import Batch, Comparison, Compute, batches, compare, eager, outputs_of
from lightbert.errors import InputError, unknown
from lightbert.files import folder_atomic, write_atomic
from lightbert.models import Model
from lightbert.models.pooling import write_pooling
from lightbert.models.tokenizer import write_tokenizer
from lightbert.nn.inference import Inference
from lightbert.tasks.predict.exported import STATES, runtime_of
from lightbert.tasks.predict.predictor import kind_of_model
from lightbert.tasks.predict.runtime import Runtime

ERROR = 1e-3
"""The largest error of a float32 file, relative to the largest output; larger ones are not rounding."""
MAX_LOSS = 0.5
"""The largest loss of an int8 file in points of the main metric, unless a larger one is allowed."""
PER_TOKEN = (STATES, "mlm", "rtd", "tokens", "span")
"""The heads with outputs for each token."""

Measure = Callable[[Runtime | None], dict[str, float]]
"""Computes the metrics of a runtime, or of the model itself (None); the first one is the main metric."""


class Source:
    """A model and the head to export, with the outputs that its file must have.

    shortest: the number of tokens of the shortest rows that the target supports without padding.
    trained: the model as quantization-aware training ran it, if the file must compute that.
    """

    def __init__(self, model: Model, head: str = "", shortest: int = 1, trained: Model | None = None) -> None:
        self.model = model.eval().requires_grad_(False).to("cpu", torch.float32)
        self.head = choose_head(model, head)
        least = shortest if model.released_padding else 1
        self.inputs = [batch for batch in batches(model) if batch.ids.shape[1] >= least]
        self.expected = outputs_of(reference(trained or self.model, self.head), self.inputs)
        """The outputs of the model."""

    @property
    def texts(self) -> list[Batch]:
        """The inputs that are real texts; all if the model has no tokenizer."""
        return [batch for batch in self.inputs if batch.real] or self.inputs

    def compare(self, found: Compute, inputs: Sequence[Batch]) -> list[Comparison]:
        """Compare the outputs for some of the inputs."""
        wanted = [self.expected[self.inputs.index(batch)] for batch in inputs]
        return compare(inputs, wanted, outputs_of(found, inputs), per_token=self.head in PER_TOKEN)


@dataclass(frozen=True)
class Guard:
    """What the metric may lose: `measure` computes it, a loss of more than `max_loss` points is an error."""

    measure: Measure | None = None
    max_loss: float = MAX_LOSS


def publish(
    source: Source, out: str | Path, file: str, precision: str, write: Callable[[Path], Quantized | None], guard: Guard
) -> Export:
    """Write a file into a new folder and verify it; add config.json and the tokenizer; rename the folder to `out`.

    write: writes the file to a path.
    """
    with folder_atomic(out, EXPORTED_FOLDER) as folder:
        path, start = folder / file, time.perf_counter()
        quantized = write(path)
        seconds = time.perf_counter() - start
        runtime = runtime_of(path, source.head, reads_padding=source.model.released_padding)
        comparisons = source.compare(runtime, source.inputs)
        if quantized is None:
            check_errors(comparisons, ERROR)
        else:
            check_cosines(
                [each for batch, each in zip(source.inputs, comparisons, strict=True) if batch in source.texts]
            )
        metric = None if guard.measure is None else _change(guard.measure, runtime, guard.max_loss)
        write_description(source.model, source.head, precision, folder)
        size = path.stat().st_size
    return Export(Path(out), file, source.head, precision, size, seconds, tuple(comparisons), quantized, metric)


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


def check_cosines(comparisons: Sequence[Comparison]) -> None:
    """Raise an InputError if the outputs of an int8 file point elsewhere than those of the model."""
    lowest = min(each.cosine for each in comparisons)
    if not lowest >= COSINE:
        raise InputError(
            f"the cosine between the outputs of the model and of the int8 file must be >= {COSINE}, got {lowest:.3f}; "
            "nothing was written. Export without --int8"
        )


def write_description(model: Model, head: str, precision: str, folder: Path) -> None:
    """Write config.json, the tokenizer, and for a sentence encoder the files of its pooling."""
    write_atomic(folder / "config.json", json.dumps(exported_config(model, head, precision), indent=2) + "\n")
    if model.tokenizer is not None:
        write_tokenizer(model.tokenizer, folder, model.positions)
    if model.pooling is not None and head == STATES:
        write_pooling(model.pooling, folder, model.width)
