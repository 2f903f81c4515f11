"""Linear layers and tables in int8: weights per output channel, table rows with one scale each."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from lightbert.deploy.onnx.graph import Array, Linear, Lookup, Node

# onnx.TensorProto.FLOAT
_FLOAT = 1
_LARGEST_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Range:
    """The values of an activation: smallest and largest; others are clipped."""

    low: float
    high: float

    @property
    def scale(self) -> np.float32:
        """The step between two of the 256 values."""
        return np.float32(max((max(self.high, 0.0) - min(self.low, 0.0)) / 255, 1e-12))

    @property
    def zero(self) -> np.uint8:
        """The value that stands for 0, which is represented exactly."""
        return np.uint8(np.clip(round(-min(self.low, 0.0) / float(self.scale)), 0, 255))


def quantize_rows(weight: Array) -> tuple[Array, Array]:
    """Round to int8, symmetrically with one scale per row: [R, C] -> int8 [R, C] and float32 [R, 1]."""
    scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True) / 127, 1e-12).astype(np.float32)
    return np.clip(np.rint(weight / scale), -127, 127).astype(np.int8), scale


def quantize_columns(weight: Array) -> tuple[Array, Array]:
    """Round to int8 with one scale per column: [I, O] -> int8 [I, O] and float32 [O]."""
    rows, scale = quantize_rows(weight.T)
    return np.ascontiguousarray(rows.T), scale[:, 0]


def lookup_nodes(layer: Lookup, constants: dict[str, Array]) -> list[Node]:
    """Gather int8 rows and their scales."""
    _store_table(layer.name, layer.table, constants)
    rows, scales, cast = (f"{layer.output}_{part}" for part in ("rows", "scales", "cast"))
    return [
        Node("Gather", (f"{layer.name}.int8", layer.input), (rows,)),
        Node("Gather", (f"{layer.name}.scale", layer.input), (scales,)),
        Node("Cast", (rows,), (cast,), {"to": _FLOAT}),
        Node("Mul", (cast, scales), (layer.output,)),
    ]


def scaled(layer: Linear, scales: Array | None, constants: dict[str, Array], nodes: list[Node]) -> Linear:
    """Divide the input of a layer by scales, one per channel, and multiply its weight with them; None changes nothing.

    The division is added to `nodes` once per input.
    """
    if scales is None:
        return layer
    divided, factors = f"{layer.input}_divided", f"{layer.input}_channel_factors"
    if factors not in constants:
        constants[factors] = 1 / scales
        nodes.append(Node("Mul", (layer.input, factors), (divided,)))
    return replace(layer, input=divided, weight=layer.weight * scales[:, None])


def dynamic_nodes(layer: Linear, constants: dict[str, Array], rounded: dict[str, tuple[str, ...]]) -> list[Node]:
    """Quantize the input by its own range in every call; `rounded` has the inputs that were quantized already.

    ONNX Runtime fuses these operators into one.
    """
    nodes: list[Node] = []
    if layer.input not in rounded:
        rounded[layer.input] = tuple(f"{layer.input}_{part}" for part in ("int8", "scale", "zero"))
        nodes.append(Node("DynamicQuantizeLinear", (layer.input,), rounded[layer.input]))
    x, scale, zero = rounded[layer.input]
    weight, columns = _stored_weight(layer, constants, nodes)
    product, cast, factor = (f"{layer.output}_{part}" for part in ("product", "cast", "factor"))
    nodes += [
        Node("MatMulInteger", (x, weight, zero), (product,)),
        Node("Cast", (product,), (cast,), {"to": _FLOAT}),
        Node("Mul", (scale, columns), (factor,)),
    ]
    return [*nodes, *_plus(layer, constants, lambda output: Node("Mul", (cast, factor), (output,)))]


def static_nodes(
    layer: Linear, constants: dict[str, Array], rounded: dict[str, tuple[str, ...]], activation: Range
) -> list[Node]:
    """Quantize the input by a calibrated range: a quantized and dequantized input times a dequantized weight.

    ONNX Runtime fuses these operators into one that multiplies integers, and with a bias in int32 also the relu and the
    quantization for the next layer.
    """
    nodes: list[Node] = []
    if layer.input not in rounded:
        constants[f"{layer.input}_scale"] = np.asarray(activation.scale)
        constants[f"{layer.input}_zero"] = np.asarray(activation.zero)
        parameters = (f"{layer.input}_scale", f"{layer.input}_zero")
        integers, rounded[layer.input] = f"{layer.input}_int8", (f"{layer.input}_rounded",)
        nodes.append(Node("QuantizeLinear", (layer.input, *parameters), (integers,)))
        nodes.append(Node("DequantizeLinear", (integers, *parameters), rounded[layer.input]))
    weight, columns = _stored_weight(layer, constants, nodes)
    constants[f"{layer.name}.zeros"] = np.zeros(layer.weight.shape[1], np.int8)
    real = f"{layer.name}.real"
    nodes.append(Node("DequantizeLinear", (weight, columns, f"{layer.name}.zeros"), (real,), {"axis": 1}))
    read = rounded[layer.input]
    if layer.matrix and layer.bias is not None:
        factor = constants[columns] * activation.scale
        integers32 = np.rint(layer.bias / factor.astype(np.float64))
        # A channel without weights has too small a factor.
        if np.abs(integers32).max() < _LARGEST_INT32:
            bias, parts = f"{layer.name}.bias", (f"{layer.name}.bias.int32", f"{layer.name}.bias.scale")
            constants[parts[0]], constants[parts[1]] = integers32.astype(np.int32), factor
            nodes.append(Node("DequantizeLinear", parts, (bias,), {"axis": 0}))
            return [*nodes, Node("Gemm", (*read, real, bias), (layer.output,))]
    return [*nodes, *_plus(layer, constants, lambda output: Node("MatMul", (*read, real), (output,)))]


def _plus(layer: Linear, constants: dict[str, Array], product: Callable[[str], Node]) -> list[Node]:
    """The product, made for the name of its output, and the addition of the bias or the residual."""
    added = layer.residual
    if layer.bias is not None:
        added = f"{layer.name}.bias"
        constants[added] = layer.bias
    if not added:
        return [product(layer.output)]
    return [product(f"{layer.output}_plain"), Node("Add", (f"{layer.output}_plain", added), (layer.output,))]


def _stored_weight(layer: Linear, constants: dict[str, Array], nodes: list[Node]) -> tuple[str, str]:
    """Store the weight, or transpose the int8 table that it shares; return its name and that of its scales."""
    weight, columns = f"{layer.name}.int8", f"{layer.name}.scale"
    if layer.table:
        _store_table(layer.table, layer.weight.T, constants)
        constants[columns] = constants[f"{layer.table}.scale"][:, 0]
        nodes.append(Node("Transpose", (f"{layer.table}.int8",), (weight,), {"perm": [1, 0]}))
    else:
        constants[weight], constants[columns] = quantize_columns(layer.weight)
    return weight, columns


def _store_table(name: str, table: Array, constants: dict[str, Array]) -> None:
    constants[f"{name}.int8"], constants[f"{name}.scale"] = quantize_rows(table)
