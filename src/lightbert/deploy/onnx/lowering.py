"""From a graph to operators: linear layers in float32, or merged by their input and in int8."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from lightbert.deploy.onnx.graph import Array, Graph, Linear, Lookup, Node, Output
from lightbert.deploy.onnx.int8 import Range, dynamic_nodes, lookup_nodes, scaled, static_nodes
from lightbert.errors import required


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
    constants = dict(graph.constants)
    nodes = _float_nodes(graph, constants) if int8 is None else _int8_nodes(graph, constants, int8)
    nodes += [Node("Identity", (output.value,), (name,)) for name, output in outputs.items()]
    with required("export to ONNX requires onnx", "lightbert[export]"):
        from lightbert.deploy.onnx.file_format import serialize
    return serialize(nodes, constants, outputs)


def _float_nodes(graph: Graph, constants: dict[str, Array]) -> list[Node]:
    nodes: list[Node] = []
    for node in graph.nodes:
        match node:
            case Linear():
                nodes += _linear(node, constants)
            case Lookup():
                constants[node.name] = node.table
                nodes.append(Node("Gather", (node.name, node.input), (node.output,)))
            case Node():
                nodes.append(node)
    return nodes


def _int8_nodes(graph: Graph, constants: dict[str, Array], int8: Int8) -> list[Node]:
    nodes: list[Node] = []
    rounded: dict[str, tuple[str, ...]] = {}
    for node in merge(graph.nodes, constants, int8.floats):
        match node:
            case Linear(floating=True):
                nodes += _linear(node, constants)
            case Linear():
                values = int8.ranges.get(node.input)
                layer = scaled(node, int8.scales.get(node.input), constants, nodes)
                if values is None:
                    nodes += dynamic_nodes(layer, constants, rounded)
                else:
                    nodes += static_nodes(layer, constants, rounded, values)
            case Lookup():
                nodes += lookup_nodes(node, constants)
            case Node(kind="Gelu"):
                # Half the time of the exact form; the difference, 5e-4 at most, is less than that of the rounding.
                nodes.append(Node(node.kind, node.inputs, node.outputs, {"approximate": "tanh"}))
            case Node(kind="Relu") if int8.ranges and node.outputs[0] in int8.scales:
                # ONNX Runtime would fuse a Relu that is not quantized at once with the Gemm before it, and dequantize
                # the weights in every call.
                constants["zero.float32"] = np.zeros(1, np.float32)
                nodes.append(Node("Max", (*node.inputs, "zero.float32"), node.outputs))
            case Node():
                nodes.append(node)
    return nodes


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
    weight = np.concatenate([each.weight for each in group], axis=1)
    zeros = [np.zeros(each.weight.shape[1], np.float32) for each in group]
    bias = np.concatenate([none if each.bias is None else each.bias for each, none in zip(group, zeros, strict=True)])
    name = "+".join([group[0].name, *(each.name.rpartition(".")[2] for each in group[1:])])
    sizes = np.array([each.weight.shape[1] for each in group], dtype=np.int64)
    constants[f"{name}.sizes"] = sizes
    together = Linear(name, group[0].input, f"{name}_{group[0].output}", weight, bias, floating=group[0].floating)
    outputs = tuple(each.output for each in group)
    return [together, Node("Split", (together.output, f"{name}.sizes"), outputs, {"axis": -1})]


def _linear(layer: Linear, constants: dict[str, Array]) -> list[Node]:
    """Gemm for matrices, otherwise MatMul and Add.

    A weight that is a table is transposed when the session starts, so that it is stored once.
    """
    weight, nodes = f"{layer.name}.weight", []
    if layer.table and layer.table in constants:
        nodes.append(Node("Transpose", (layer.table,), (weight,), {"perm": [1, 0]}))
    else:
        constants[weight] = layer.weight
    added = layer.residual
    if layer.bias is not None:
        added = f"{layer.name}.bias"
        constants[added] = layer.bias
    if not added:
        return [*nodes, Node("MatMul", (layer.input, weight), (layer.output,))]
    if layer.matrix:
        return [*nodes, Node("Gemm", (layer.input, weight, added), (layer.output,))]
    product = f"{layer.output}_product"
    return [*nodes, Node("MatMul", (layer.input, weight), (product,)), Node("Add", (product, added), (layer.output,))]
