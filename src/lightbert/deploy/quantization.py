"""Quantize a graph to int8: measure the inputs of its layers, and keep those that lose too much in float32."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lightbert.deploy.onnx.graph import Array, Depthwise, Graph, Linear, Node, Output
from lightbert.deploy.onnx.lowering import MIDDLE, Int8, Range, lower, quantize_columns
from lightbert.deploy.verification import Batch, Comparison
from lightbert.errors import InputError
from lightbert.tasks.predict.exported import Session
from lightbert.tasks.predict.runtime import Arrays

COSINE = 0.99
"""The smallest cosine between the outputs of the model and of the int8 file that is accepted."""

Mode = Literal["dynamic", "static", "qat"]
"""How the inputs of layers are quantized: by their range in every call, a calibrated one, or one that was learned."""

# Rows of an input that are kept to measure errors.
_SAMPLE = 512
# Fractions of the full range that static ranges may clip to.
_CLIPS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
# How much of the channels' differences moves from the input to the weights; 1 = all.
_STRENGTHS = (0.5, 0.7, 0.85)
# The largest values that a depthwise convolution can have, relative to the largest that were measured.
_ROOM, _LARGEST = 1.5, 127
# Channel scales cost a multiplication of the input, so they must halve the error.
_WORTHWHILE = 0.5


@dataclass(frozen=True)
class FloatLayer:
    """A layer that stays in float32, and why."""

    name: str
    error: float
    """The relative error of its output if it alone were int8."""
    low: float
    high: float
    """The range of its input."""


@dataclass(frozen=True)
class Quantized:
    """The layers of an int8 file that stay in float32, and the number of all layers."""

    floats: tuple[FloatLayer, ...]
    layers: int


@dataclass(frozen=True)
class Calibration:
    """How to quantize each layer, and what it loses."""

    int8: Int8
    errors: dict[str, float]
    """Layer -> the relative error of its output if it alone is int8, the mean over tokens."""
    inputs: dict[str, Range]
    """Layer -> the range of its input."""


def quantize(
    graph: Graph,
    outputs: dict[str, Output],
    mode: Mode,
    calibration: Sequence[Batch],
    compare: Callable[[Callable[..., Arrays]], Sequence[Comparison]],
    learned: Mapping[str, Range] | None = None,
) -> tuple[bytes, Quantized]:
    """Quantize all layers; if the outputs differ too much, keep 1, 2, 4, … layers with the largest errors in float32.

    calibration: the batches on which ranges and errors are measured.
    compare: compares the outputs of a file with those of the model.
    learned: layer -> the range that it was trained with.
    """
    measured = calibrate(graph, calibration, static=mode == "static", learned=learned)
    ranked = sorted(measured.errors, key=lambda name: -measured.errors[name])
    count, lowest = 0, 0.0
    while count <= len(ranked) // 2:
        floats = ranked[:count]
        content = lower(graph, outputs, replace(measured.int8, floats=frozenset(floats)))
        lowest = min(comparison.cosine for comparison in compare(Session(content)))
        if lowest >= COSINE:
            ranges = [(name, measured.inputs[name]) for name in floats]
            layers = [FloatLayer(name, measured.errors[name], values.low, values.high) for name, values in ranges]
            return content, Quantized(tuple(layers), len(ranked))
        count = max(1, 2 * count)
    raise InputError(
        f"the cosine between the outputs of the model and of the int8 file must be >= {COSINE}, got {lowest:.3f} with "
        f"{count // 2} of {len(ranked)} layers in float32; export without --int8"
    )


def calibrate(
    graph: Graph, batches: Iterable[Batch], *, static: bool = False, learned: Mapping[str, Range] | None = None
) -> Calibration:
    """Measure the inputs of all linear layers, choose their scales and with `static` their ranges.

    learned: layer -> the range that it was trained with, which needs no scales.
    """
    layers: dict[str, list[Linear]] = {}
    for node in graph.nodes:
        if isinstance(node, Linear):
            layers.setdefault(node.input, []).append(node)
    convolved = set() if learned else _int8_convolutions(graph)
    steps, scales, ranges, errors, inputs = {}, {}, {}, {}, {}
    for name, activation in _activations(graph, sorted(layers), batches).items():
        if name in convolved:
            steps[name] = np.maximum(np.maximum(-activation.low, activation.high) * _ROOM / _LARGEST, 1e-12)
            for layer in layers[name]:
                weight = layer.weight * steps[name][:, None]
                errors[layer.name] = _error(activation.divided(steps[name]), weight, Range(-MIDDLE, 255 - MIDDLE))
                inputs[layer.name] = activation.full
            continue
        trained = (
            next((learned[layer.name] for layer in layers[name] if layer.name in learned), None) if learned else None
        )
        factors = None if trained is not None else _channel_scales(activation, layers[name])
        divided = activation if factors is None else activation.divided(factors)
        if factors is not None:
            scales[name] = factors
        if trained is not None or static:
            ranges[name] = trained or divided.clipped()
        for layer in layers[name]:
            weight = layer.weight if factors is None else layer.weight * factors[:, None]
            errors[layer.name] = _error(divided, weight, ranges.get(name, divided.full))
            inputs[layer.name] = activation.full
    return Calibration(Int8(scales, ranges, steps), errors, inputs)


def _int8_convolutions(graph: Graph) -> set[str]:
    """The outputs of the depthwise convolutions that can become int8: layers read them, and also their input."""
    read: dict[str, set[type]] = {}
    for node in graph.nodes:
        for name in node.inputs if isinstance(node, Node) else (node.input,):
            read.setdefault(name, set()).add(type(node))
    convolutions = [node for node in graph.nodes if isinstance(node, Depthwise)]
    return {node.output for node in convolutions if read[node.output] == {Linear} and Linear in read[node.input]}


@dataclass(frozen=True)
class Activation:
    """An input of linear layers: a sample of its rows [N, I], and the range of each channel over all rows."""

    sample: Array
    low: Array
    high: Array

    @property
    def full(self) -> Range:
        """The range of all channels."""
        return Range(float(self.low.min()), float(self.high.max()))

    def divided(self, scales: Array) -> "Activation":
        """The input after a division of each channel by its scale."""
        return Activation(self.sample / scales, self.low / scales, self.high / scales)

    def clipped(self) -> Range:
        """The range with the smallest mean square error of quantization: outliers are clipped if that pays."""
        candidates = [Range(self.full.low * share, self.full.high * share) for share in _CLIPS]
        return min(candidates, key=lambda values: float(np.square(rounded(self.sample, values) - self.sample).mean()))


def _activations(graph: Graph, names: Sequence[str], batches: Iterable[Batch]) -> dict[str, Activation]:
    """Run a model in float32 and collect the values of these names, without padding."""
    session = Session(lower(graph, {f"input {number}": Output(name, None) for number, name in enumerate(names)}))
    collected: dict[str, list[Array]] = {name: [] for name in names}
    for batch in batches:
        for name, value in zip(names, session(*batch.arrays), strict=True):
            # The inputs of heads that read [CLS] are [B, D].
            rows = value.reshape(-1, value.shape[-1])
            collected[name].append(rows[batch.mask.ravel()] if len(rows) == batch.mask.size else rows)
    activations = {}
    for name, parts in collected.items():
        rows = np.concatenate(parts)
        sample = rows[np.random.default_rng(0).permutation(len(rows))[:_SAMPLE]]
        activations[name] = Activation(sample, rows.min(axis=0), rows.max(axis=0))
    return activations


def _channel_scales(activation: Activation, layers: Sequence[Linear]) -> Array | None:
    """Scales that move outliers of single channels from the input to the weights; None if they aren't worthwhile.

    Dividing the input by scales and multiplying the rows of the weight with them leaves the product unchanged
    (SmoothQuant, Xiao et al. 2022).
    """
    # A table that the embeddings share can't be scaled.
    if any(layer.table for layer in layers):
        return None
    joint = np.concatenate([layer.weight for layer in layers], axis=1)
    of_weight = np.abs(joint).max(axis=1) + np.float32(1e-6)
    of_input = np.maximum(np.abs(activation.low), np.abs(activation.high)) + np.float32(1e-6)
    smallest, best = _WORTHWHILE * _error(activation, joint, activation.full), None
    for strength in _STRENGTHS:
        scales = (of_input**strength / of_weight ** (1 - strength)).astype(np.float32)
        divided = activation.divided(scales)
        error = _error(divided, joint * scales[:, None], divided.full)
        if error < smallest:
            smallest, best = error, scales
    return best


def _error(activation: Activation, weight: Array, values: Range) -> float:
    """The relative error of the product of a rounded input and a rounded weight: the mean over tokens.

    Each token counts the same, because a few, such as [SEP], have outputs that are far larger than all others.
    """
    integers, scale = quantize_columns(weight)
    exact = activation.sample @ weight
    product = rounded(activation.sample, values) @ (integers * scale)
    lengths = np.maximum(np.linalg.norm(exact, axis=1), 1e-12)
    return float((np.linalg.norm(product - exact, axis=1) / lengths).mean())


def rounded(x: Array, values: Range) -> Array:
    """The values that x has after quantization."""
    integers = np.clip(np.rint(x / values.scale) + np.float32(values.zero), 0, 255)
    return (integers - np.float32(values.zero)) * values.scale
