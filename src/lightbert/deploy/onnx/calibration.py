"""What the inputs of linear layers look like on real texts: channel scales, ranges, and the error of each layer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lightbert.deploy.onnx.graph import Array, Graph, Linear, Output
from lightbert.deploy.onnx.int8 import Range, quantize_columns
from lightbert.deploy.onnx.lowering import Int8, lower
from lightbert.deploy.verification import Batch
from lightbert.tasks.predict.exported import Session

# Rows of an input that are kept to measure errors.
_SAMPLE = 512
# Shares of the full range that static ranges may clip to.
_CLIPS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
# How much of the channels' differences moves from the input to the weights; 1 = all.
_STRENGTHS = (0.5, 0.7, 0.85)
# Channel scales cost a multiplication, so they must reduce the error by a quarter.
_WORTHWHILE = 0.75


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

    @property
    def peaks(self) -> Array:
        """The largest absolute value of each channel."""
        return np.maximum(np.abs(self.low), np.abs(self.high)) + np.float32(1e-6)

    def divided(self, scales: Array) -> "Activation":
        """The input after a division of each channel by its scale."""
        return Activation(self.sample / scales, self.low / scales, self.high / scales)

    def clipped(self) -> Range:
        """The range with the smallest mean square error of quantization: outliers are clipped if that pays."""
        candidates = [Range(self.full.low * share, self.full.high * share) for share in _CLIPS]
        return min(candidates, key=lambda each: float(np.square(rounded(self.sample, each) - self.sample).mean()))


@dataclass(frozen=True)
class Calibration:
    """How to quantize each layer, and what it loses."""

    int8: Int8
    errors: dict[str, float]
    """Layer -> the relative error of its output if it alone is int8, the mean over tokens."""
    inputs: dict[str, Range]
    """Layer -> the range of its input."""


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
    scales, ranges, errors, inputs = {}, {}, {}, {}
    for name, activation in _activations(graph, sorted(layers), batches).items():
        trained = next((learned[each.name] for each in layers[name] if each.name in learned), None) if learned else None
        found = None if trained is not None else _channel_scales(activation, layers[name])
        seen = activation if found is None else activation.divided(found)
        if found is not None:
            scales[name] = found
        if trained is not None or static:
            ranges[name] = trained or seen.clipped()
        for layer in layers[name]:
            weight = layer.weight if found is None else layer.weight * found[:, None]
            errors[layer.name] = _error(seen, weight, ranges.get(name, seen.full))
            inputs[layer.name] = activation.full
    return Calibration(Int8(scales, ranges), errors, inputs)


def _activations(graph: Graph, names: Sequence[str], batches: Iterable[Batch]) -> dict[str, Activation]:
    """Run a model in float32 and collect the values of these names, without padding."""
    outputs = {f"input {number}": Output(name, None) for number, name in enumerate(names)}
    session = Session(lower(graph, outputs))
    rows: dict[str, list[Array]] = {name: [] for name in names}
    for batch in batches:
        for name, value in zip(names, session(batch.ids, batch.mask, batch.segments), strict=True):
            # The inputs of heads that read [CLS] are [B, D].
            real = value.reshape(-1, value.shape[-1])
            rows[name].append(real[batch.mask.ravel()] if len(real) == batch.mask.size else real)
    return {name: _activation(np.concatenate(each)) for name, each in rows.items()}


def _activation(rows: Array) -> Activation:
    chosen = np.random.default_rng(0).permutation(len(rows))[:_SAMPLE]
    return Activation(rows[chosen], rows.min(axis=0), rows.max(axis=0))


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
    best, scales = _WORTHWHILE * _error(activation, joint, activation.full), None
    for strength in _STRENGTHS:
        found = (activation.peaks**strength / of_weight ** (1 - strength)).astype(np.float32)
        seen = activation.divided(found)
        error = _error(seen, joint * found[:, None], seen.full)
        if error < best:
            best, scales = error, found
    return scales


def _error(activation: Activation, weight: Array, values: Range) -> float:
    """The relative error of the product of a rounded input and a rounded weight: the mean over tokens.

    Each token counts the same, because a few, such as [SEP], have outputs that are far larger than all others.
    """
    integers, scale = quantize_columns(weight)
    exact = activation.sample @ weight
    found = rounded(activation.sample, values) @ (integers * scale)
    lengths = np.maximum(np.linalg.norm(exact, axis=1), 1e-12)
    return float((np.linalg.norm(found - exact, axis=1) / lengths).mean())


def rounded(x: Array, values: Range) -> Array:
    """The values that x has after quantization."""
    integers = np.clip(np.rint(x / values.scale) + np.float32(values.zero), 0, 255)
    return (integers - np.float32(values.zero)) * values.scale
