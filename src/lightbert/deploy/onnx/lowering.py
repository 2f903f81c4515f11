"""From a graph to an ONNX file: linear layers in float32, or merged by their input and in int8.

Int8 weights have one scale per output channel, int8 tables one per row.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lightbert.deploy.onnx.graph import Array, Depthwise, Graph, Linear, Lookup, Node, Output, Part
from lightbert.deploy.onnx.mask import FLOAT, INPUTS
from lightbert.errors import required

OPSET = 23
"""The first with Attention. ONNX Runtime reads it since 1.24, transformers.js since version 4."""
_IR_VERSION = 10
_LARGEST_INT32 = 2**31 - 1
MIDDLE = 128
"""The integer that stands for 0 in the output of a depthwise convolution."""


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
    steps: Mapping[str, Array] = field(default_factory=dict)
    """Output of a depthwise convolution -> the distance of two of its values per channel, if it becomes int8."""
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
                case Depthwise():
                    lowering.float_convolution(node)
                case Lookup():
                    lowering.constants[node.name] = node.table
                    lowering.add("Gather", (node.name, node.input), node.output)
                case Node():
                    lowering.nodes.append(node)
    else:
        nodes, int8 = fold(graph, int8)
        for node in merge(nodes, lowering.constants, int8.floats):
            lowering.quantize(node, int8)
    for name, output in outputs.items():
        lowering.add("Identity", (output.value,), name)
    return _serialize(lowering.nodes, lowering.constants, outputs)


@dataclass(frozen=True)
class _Lowering:
    """The operators and the constants of a file so far."""

    constants: dict[str, Array]
    nodes: list[Node]
    rounded: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Input of layers -> its integers, their scale and their zero, which the first layer adds."""
    dequantized: set[str] = field(default_factory=set)
    """The names of dequantized inputs so far."""

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

    def float_convolution(self, layer: Depthwise) -> None:
        """A grouped Conv over [B, D, T]."""
        self._convolve(
            layer, layer.input, layer.output, "Conv", self.constant(f"{layer.name}.weight", layer.weight[:, None])
        )

    def int8_convolution(self, layer: Depthwise, int8: Int8) -> None:
        """Integers to integers: QLinearConv, whose zeros beyond the ends of a text are those of its input."""
        scales = int8.scales.get(layer.input)
        weight = layer.weight / int8.steps[layer.output][:, None]
        x, *of_input = self._integers(self._divided(layer.input, scales), int8.ranges.get(layer.input))
        integers, columns = quantize_rows(weight if scales is None else weight * scales[:, None])
        weights = (
            self.constant(f"{layer.name}.int8", integers[:, None]),
            self.constant(f"{layer.name}.scale", columns[:, 0]),
            self.constant(f"{layer.name}.zeros", np.zeros(len(integers), np.int8)),
        )
        one = self.constant("one.float32", np.float32(1))
        middle = self.constant("middle.uint8", np.uint8(MIDDLE))
        output = f"{layer.output}_int8"
        self._convolve(layer, x, output, "QLinearConv", *of_input, *weights, one, middle)
        self.rounded[layer.output] = (output, one, middle)

    def _convolve(self, layer: Depthwise, rows: str, output: str, kind: str, *operands: str) -> None:
        """Apply a convolution over [B, D, T] to rows [N, D]."""
        texts, x, y, mixed = (f"{output}_{part}" for part in ("texts", "x", "y", "mixed"))
        channels, kernel = layer.weight.shape
        self.add("Reshape", (rows, layer.texts), texts)
        self.add("Transpose", (texts,), x, perm=[0, 2, 1])
        self.add(kind, (x, *operands), y, group=channels, kernel_shape=[kernel], pads=[kernel // 2, (kernel - 1) // 2])
        self.add("Transpose", (y,), mixed, perm=[0, 2, 1])
        self.add("Reshape", (mixed, self.constant(f"rows[{channels}]", np.array([-1, channels]))), output)

    def quantize(self, node: Part, int8: Int8) -> None:
        match node:
            case Linear(floating=True):
                self.float_layer(node)
            case Linear():
                layer = replace(node, input=self._divided(node.input, int8.scales.get(node.input)))
                values = int8.ranges.get(node.input)
                dynamic = values is None and node.input not in int8.steps
                self._dynamic_layer(layer) if dynamic else self._static_layer(layer, values)
            case Depthwise():
                self.int8_convolution(node, int8) if node.output in int8.steps else self.float_convolution(node)
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

    def _divided(self, x: str, scales: Array | None) -> str:
        """Divide the input of layers by scales, one per channel."""
        if scales is None:
            return x
        divided, factors = f"{x}_divided", f"{x}_channel_factors"
        if factors not in self.constants:
            self.constants[factors] = 1 / scales
            self.add("Mul", (x, factors), divided)
        return divided

    def _integers(self, x: str, values: Range | None) -> tuple[str, str, str]:
        """The integers of an input, by a calibrated range or by its own one in every call, their scale and zero."""
        if x not in self.rounded:
            self.rounded[x] = integers, scale, zero = f"{x}_int8", f"{x}_scale", f"{x}_zero"
            if values is None:
                self.add("DynamicQuantizeLinear", (x,), integers, scale, zero)
            else:
                parameters = self.constant(scale, values.scale), self.constant(zero, values.zero)
                self.add("QuantizeLinear", (x, *parameters), integers)
        return self.rounded[x]

    def _dynamic_layer(self, layer: Linear) -> None:
        """Quantize the input by its own range in every call. ONNX Runtime fuses these operators into one."""
        x, scale, zero = self._integers(layer.input, None)
        weight, columns = self._store_weight(layer)
        product, cast, factor = (f"{layer.output}_{part}" for part in ("product", "cast", "factor"))
        self.add("MatMulInteger", (x, weight, zero), product)
        self.add("Cast", (product,), cast, to=FLOAT)
        self.add("Mul", (scale, columns), factor)
        self._with_bias(layer, lambda output: self.add("Mul", (cast, factor), output))

    def _static_layer(self, layer: Linear, values: Range | None) -> None:
        """Quantize the input by a calibrated range: quantized and dequantized input times dequantized weight.

        ONNX Runtime fuses these operators into one that multiplies integers, and with a bias in int32 also the relu and
        the quantization for the next layer.
        """
        quantized = self._integers(layer.input, values)
        x = f"{quantized[0]}_dequantized"
        if x not in self.dequantized:
            self.dequantized.add(x)
            self.add("DequantizeLinear", quantized, x)
        step = self.constants[quantized[1]]
        weight, columns = self._store_weight(layer)
        zeros = self.constant(f"{layer.name}.zeros", np.zeros(layer.weight.shape[1], np.int8))
        real = f"{layer.name}.real"
        self.add("DequantizeLinear", (weight, columns, zeros), real, axis=1)
        if layer.matrix and layer.bias is not None:
            factor = self.constants[columns] * step
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


def fold(graph: Graph, int8: Int8) -> tuple[list[Part], Int8]:
    """Multiply the weights of layers with the scales of their inputs.

    Where an input is a product of layers, they divide by the scales, which costs nothing. What a layer in float32 reads
    is not divided there, and not the integers of a convolution.
    """
    floats = {node.input for node in graph.nodes if isinstance(node, Linear) and node.name in int8.floats}
    folded = int8.scales.keys() & graph.factors.keys() - floats
    steps = {name: step for name, step in int8.steps.items() if name not in floats}
    factors: dict[str, Array] = {**int8.scales, **steps}
    divisors: dict[str, Array] = {}
    for name in folded:
        layers = graph.factors[name]
        divisors |= zip(layers, np.split(int8.scales[name], len(layers)), strict=True)
    nodes = []
    for node in graph.nodes:
        if isinstance(node, Linear) and node.output in divisors:
            divisor = divisors[node.output]
            node = replace(node, weight=node.weight / divisor, bias=None if node.bias is None else node.bias / divisor)
        if isinstance(node, Linear) and node.name not in int8.floats and node.input in factors:
            node = replace(node, weight=node.weight * factors[node.input][:, None])
        nodes.append(node)
    scales = {name: values for name, values in int8.scales.items() if name not in folded}
    return nodes, replace(int8, scales=scales, steps=steps)


def merge(nodes: list[Part], constants: dict[str, Array], floats: frozenset[str] = frozenset()) -> list[Part]:
    """Merge linear layers that read the same value, in the same precision, into one, followed by a Split."""
    nodes = [replace(node, floating=node.name in floats) if isinstance(node, Linear) else node for node in nodes]
    readers: dict[tuple[str, bool], list[Linear]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, Linear) and not node.table and not node.residual:
            readers[node.input, node.floating].append(node)
    merged: list[Part] = []
    for node in nodes:
        group = readers[node.input, node.floating] if isinstance(node, Linear) else []
        if not isinstance(node, Linear) or len(group) < 2 or node not in group:
            merged.append(node)
        elif node is group[0]:
            merged += _as_one(group, constants)
    return merged


def _as_one(group: list[Linear], constants: dict[str, Array]) -> list[Part]:
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
