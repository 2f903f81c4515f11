"""From a graph to an ONNX file: linear layers in float32, or merged by their input and in int8.

Int8 weights have one scale per output channel, int8 tables one per row.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lightbert.deploy.onnx.graph import Array, Graph, Linear, Lookup, Node, Output
from lightbert.deploy.onnx.mask import FLOAT, INPUTS
from lightbert.errors import required

OPSET = 23
"""The first with Attention. ONNX Runtime reads it since 1.24, transformers.js since version 4."""
_IR_VERSION = 10
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


@dataclass(frozen=True)
class Int8:
    """Which layers become int8, and how their inputs are quantized."""

    scales: Mapping[str, Array] = field(default_factory=dict)
    """Input of layers -> one scale per channel, by which the input is divided and the weights are multiplied."""
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Input of layers -> its calibrated range; without any, inputs are quantized by their own range in every call."""
    floats: frozenset[str] = frozenset()
    """The names of the layers that stay in float32."""


def lower(graph: Graph, outputs: Mapping[str, Output], int8: Int8 | None = None) -> bytes:
    """Return the content of an ONNX file, in float32 or int8."""
    lowering = _Lowering(dict(graph.constants), [])
    if int8 is None:
        for node in graph.nodes:
            match node:
                case Linear():
                    lowering.float_layer(node)
                case Lookup():
                    lowering.constants[node.name] = node.table
                    lowering.add("Gather", (node.name, node.input), node.output)
                case Node():
                    lowering.nodes.append(node)
    else:
        for node in merge(graph.nodes, lowering.constants, int8.floats):
            lowering.quantize(node, int8)
    for name, output in outputs.items():
        lowering.add("Identity", (output.value,), name)
    return _serialize(lowering.nodes, lowering.constants, outputs)


@dataclass(frozen=True)
class _Lowering:
    """The operators and the constants of a file so far."""

    constants: dict[str, Array]
    nodes: list[Node]
    rounded: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Input of layers -> the values of its quantization, which the first layer adds."""

    def add(self, kind: str, inputs: tuple[str, ...], *outputs: str, **attributes: Any) -> None:
        self.nodes.append(Node(kind, inputs, outputs, attributes))

    def constant(self, name: str, value: Any) -> str:
        self.constants[name] = np.asarray(value)
        return name

    def float_layer(self, layer: Linear) -> None:
        """Gemm for matrices, otherwise MatMul and Add.

        A weight that is a table is transposed when the session starts, so that it is stored once.
        """
        weight = f"{layer.name}.weight"
        if layer.table and layer.table in self.constants:
            self.add("Transpose", (layer.table,), weight, perm=[1, 0])
        else:
            self.constants[weight] = layer.weight
        added = layer.residual
        if layer.bias is not None:
            added = self.constant(f"{layer.name}.bias", layer.bias)
        if not added:
            self.add("MatMul", (layer.input, weight), layer.output)
        elif layer.matrix:
            self.add("Gemm", (layer.input, weight, added), layer.output)
        else:
            self.add("MatMul", (layer.input, weight), f"{layer.output}_product")
            self.add("Add", (f"{layer.output}_product", added), layer.output)

    def quantize(self, node: Node | Linear | Lookup, int8: Int8) -> None:
        match node:
            case Linear(floating=True):
                self.float_layer(node)
            case Linear():
                layer = self._scaled(node, int8.scales.get(node.input))
                values = int8.ranges.get(node.input)
                self._dynamic_layer(layer) if values is None else self._static_layer(layer, values)
            case Lookup():
                # Gather int8 rows and their scales.
                self._store_table(node.name, node.table)
                rows, scales, cast = (f"{node.output}_{part}" for part in ("rows", "scales", "cast"))
                self.add("Gather", (f"{node.name}.int8", node.input), rows)
                self.add("Gather", (f"{node.name}.scale", node.input), scales)
                self.add("Cast", (rows,), cast, to=FLOAT)
                self.add("Mul", (cast, scales), node.output)
            case Node(kind="Gelu"):
                # Half the time of the exact form; the difference, 5e-4 at most, is less than that of the rounding.
                self.add("Gelu", node.inputs, *node.outputs, approximate="tanh")
            case Node(kind="Relu") if int8.ranges and node.outputs[0] in int8.scales:
                # ONNX Runtime would fuse a Relu that is not quantized at once with the Gemm before it, and dequantize
                # the weights in every call.
                zero = self.constant("zero.float32", np.zeros(1, np.float32))
                self.add("Max", (*node.inputs, zero), *node.outputs)
            case Node():
                self.nodes.append(node)

    def _scaled(self, layer: Linear, scales: Array | None) -> Linear:
        """Divide the input of a layer by scales, one per channel, and multiply its weight with them."""
        if scales is None:
            return layer
        divided, factors = f"{layer.input}_divided", f"{layer.input}_channel_factors"
        if factors not in self.constants:
            self.constants[factors] = 1 / scales
            self.add("Mul", (layer.input, factors), divided)
        return replace(layer, input=divided, weight=layer.weight * scales[:, None])

    def _dynamic_layer(self, layer: Linear) -> None:
        """Quantize the input by its own range in every call. ONNX Runtime fuses these operators into one."""
        if layer.input not in self.rounded:
            self.rounded[layer.input] = tuple(f"{layer.input}_{part}" for part in ("int8", "scale", "zero"))
            self.add("DynamicQuantizeLinear", (layer.input,), *self.rounded[layer.input])
        x, scale, zero = self.rounded[layer.input]
        weight, columns = self._store_weight(layer)
        product, cast, factor = (f"{layer.output}_{part}" for part in ("product", "cast", "factor"))
        self.add("MatMulInteger", (x, weight, zero), product)
        self.add("Cast", (product,), cast, to=FLOAT)
        self.add("Mul", (scale, columns), factor)
        self._with_bias(layer, lambda output: self.add("Mul", (cast, factor), output))

    def _static_layer(self, layer: Linear, values: Range) -> None:
        """Quantize the input by a calibrated range: quantized and dequantized input times dequantized weight.

        ONNX Runtime fuses these operators into one that multiplies integers, and with a bias in int32 also the relu and
        the quantization for the next layer.
        """
        if layer.input not in self.rounded:
            parameters = (
                self.constant(f"{layer.input}_scale", values.scale),
                self.constant(f"{layer.input}_zero", values.zero),
            )
            self.rounded[layer.input] = (f"{layer.input}_rounded",)
            self.add("QuantizeLinear", (layer.input, *parameters), f"{layer.input}_int8")
            self.add("DequantizeLinear", (f"{layer.input}_int8", *parameters), f"{layer.input}_rounded")
        weight, columns = self._store_weight(layer)
        zeros = self.constant(f"{layer.name}.zeros", np.zeros(layer.weight.shape[1], np.int8))
        real, (x,) = f"{layer.name}.real", self.rounded[layer.input]
        self.add("DequantizeLinear", (weight, columns, zeros), real, axis=1)
        if layer.matrix and layer.bias is not None:
            factor = self.constants[columns] * values.scale
            integers = np.rint(layer.bias / factor.astype(np.float64))
            # A channel without weights has too small a factor.
            if np.abs(integers).max() < _LARGEST_INT32:
                bias = f"{layer.name}.bias"
                parts = (
                    self.constant(f"{bias}.int32", integers.astype(np.int32)),
                    self.constant(f"{bias}.scale", factor),
                )
                self.add("DequantizeLinear", parts, bias, axis=0)
                self.add("Gemm", (x, real, bias), layer.output)
                return
        self._with_bias(layer, lambda output: self.add("MatMul", (x, real), output))

    def _with_bias(self, layer: Linear, add_product: Callable[[str], None]) -> None:
        """Add the product under the name of its output, and the bias or the residual."""
        added = layer.residual
        if layer.bias is not None:
            added = self.constant(f"{layer.name}.bias", layer.bias)
        add_product(f"{layer.output}_plain" if added else layer.output)
        if added:
            self.add("Add", (f"{layer.output}_plain", added), layer.output)

    def _store_weight(self, layer: Linear) -> tuple[str, str]:
        """Store the weight, or transpose the int8 table that it shares; return its name and that of its scales."""
        weight, columns = f"{layer.name}.int8", f"{layer.name}.scale"
        if layer.table:
            self._store_table(layer.table, layer.weight.T)
            self.constants[columns] = self.constants[f"{layer.table}.scale"][:, 0]
            self.add("Transpose", (f"{layer.table}.int8",), weight, perm=[1, 0])
        else:
            self.constants[weight], self.constants[columns] = quantize_columns(layer.weight)
        return weight, columns

    def _store_table(self, name: str, table: Array) -> None:
        self.constants[f"{name}.int8"], self.constants[f"{name}.scale"] = quantize_rows(table)


def merge(
    nodes: list[Node | Linear | Lookup], constants: dict[str, Array], floats: frozenset[str] = frozenset()
) -> list[Node | Linear | Lookup]:
    """Merge linear layers that read the same value, in the same precision, into one, followed by a Split."""
    nodes = [replace(node, floating=node.name in floats) if isinstance(node, Linear) else node for node in nodes]
    readers: dict[tuple[str, bool], list[Linear]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, Linear) and not node.table and not node.residual:
            readers[node.input, node.floating].append(node)
    merged: list[Node | Linear | Lookup] = []
    for node in nodes:
        group = readers[node.input, node.floating] if isinstance(node, Linear) else []
        if not isinstance(node, Linear) or len(group) < 2 or node not in group:
            merged.append(node)
        elif node is group[0]:
            merged += _as_one(group, constants)
    return merged


def _as_one(group: list[Linear], constants: dict[str, Array]) -> list[Node | Linear | Lookup]:
    first, *others = group
    sizes = [layer.weight.shape[1] for layer in group]
    bias = [
        np.zeros(size, np.float32) if layer.bias is None else layer.bias
        for layer, size in zip(group, sizes, strict=True)
    ]
    weight = np.concatenate([layer.weight for layer in group], axis=1)
    name = "+".join([first.name, *(layer.name.rpartition(".")[2] for layer in others)])
    constants[f"{name}.sizes"] = np.array(sizes, dtype=np.int64)
    output = f"{name}_{first.output}"
    together = Linear(name, first.input, output, weight, np.concatenate(bias), floating=first.floating)
    return [together, Node("Split", (output, f"{name}.sizes"), tuple(layer.output for layer in group), {"axis": -1})]


def quantize_rows(weight: Array) -> tuple[Array, Array]:
    """Round to int8, symmetrically with one scale per row: [R, C] -> int8 [R, C] and float32 [R, 1]."""
    scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True) / 127, 1e-12).astype(np.float32)
    return np.clip(np.rint(weight / scale), -127, 127).astype(np.int8), scale


def quantize_columns(weight: Array) -> tuple[Array, Array]:
    """Round to int8 with one scale per column: [I, O] -> int8 [I, O] and float32 [O]."""
    rows, scale = quantize_rows(weight.T)
    return np.ascontiguousarray(rows.T), scale[:, 0]


def _serialize(nodes: list[Node], constants: Mapping[str, Array], outputs: Mapping[str, Output]) -> bytes:
    """Serialize operators; constants that no operator reads are left out."""
    with required("export to ONNX requires onnx", "lightbert[export]"):
        from onnx import TensorProto, helper, numpy_helper
    value_info = helper.make_tensor_value_info
    inputs = {name for node in nodes for name in node.inputs}
    graph = helper.make_graph(
        [helper.make_node(node.kind, node.inputs, node.outputs, **node.attributes) for node in nodes],
        "lightbert",
        [value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in INPUTS],
        [
            value_info(name, TensorProto.INT64 if o.integer else TensorProto.FLOAT, o.shape)
            for name, o in outputs.items()
        ],
        [
            numpy_helper.from_array(np.asarray(value, order="C"), name)
            for name, value in constants.items()
            if name in inputs
        ],
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=_IR_VERSION, producer_name="lightbert")
    content: bytes = model.SerializeToString()
    return content
