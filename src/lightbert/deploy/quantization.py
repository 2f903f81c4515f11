"""Quantize a graph to int8; layers that lose too much are found by measurement and stay in float32."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, Literal

from lightbert.deploy.onnx.calibration import calibrate
from lightbert.deploy.onnx.graph import Graph, Output
from lightbert.deploy.onnx.int8 import Range
from lightbert.deploy.onnx.lowering import lower
from lightbert.deploy.verification import Batch, Comparison
from lightbert.errors import InputError
from lightbert.tasks.predict.exported import Session
from lightbert.tasks.predict.runtime import Arrays

COSINE = 0.99
"""The smallest cosine between the outputs of the model and of the int8 file that is accepted."""

Mode = Literal["dynamic", "static", "qat"]
"""How the inputs of layers are quantized: by their range in every call, a calibrated one, or one that was learned."""


@dataclass(frozen=True)
class FloatLayer:
    """A layer that stays in float32, and why."""

    name: str
    error: float
    """The relative error of its output if it alone were int8."""
    low: float
    high: float
    """The range of its input."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return asdict(self)


@dataclass(frozen=True)
class Quantized:
    """A file's content, and the layers that stay in float32."""

    content: bytes
    floats: tuple[FloatLayer, ...]
    layers: int
    """The number of all layers."""


def quantize(
    graph: Graph,
    outputs: dict[str, Output],
    mode: Mode,
    calibration: Sequence[Batch],
    compare: Callable[[Callable[..., Arrays]], Sequence[Comparison]],
    learned: Mapping[str, Range] | None = None,
) -> Quantized:
    """Quantize all layers; if the outputs differ too much, keep 1, 2, 4, … layers with the largest errors in float32.

    calibration: the batches on which ranges and errors are measured.
    compare: compares the outputs of a file with those of the model.
    learned: layer -> the range that it was trained with.
    """
    found = calibrate(graph, calibration, static=mode == "static", learned=learned)
    ranked = sorted(found.errors, key=lambda name: -found.errors[name])
    count, lowest = 0, 0.0
    while count <= len(ranked) // 2:
        floats = ranked[:count]
        content = lower(graph, outputs, replace(found.int8, floats=frozenset(floats)))
        lowest = min(each.cosine for each in compare(Session(content)))
        if lowest >= COSINE:
            kept = tuple(FloatLayer(name, found.errors[name], *astuple(found.inputs[name])) for name in floats)
            return Quantized(content, kept, len(ranked))
        count = max(1, 2 * count)
    raise InputError(
        f"the cosine between the outputs of the model and of the int8 file must be >= {COSINE}, got {lowest:.3f} with "
        f"{count // 2} of {len(ranked)} layers in float32; export without --int8"
    )
